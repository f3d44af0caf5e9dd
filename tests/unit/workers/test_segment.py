"""Shared memory that has no name and takes only what was written."""

import mmap
import os
from pathlib import Path

from moorage.workers import segment


def used_bytes(descriptor: int) -> int:
    return os.fstat(descriptor).st_blocks * 512


def test_it_has_no_name_and_is_not_inherited() -> None:
    before = set(os.listdir("/dev/shm"))
    descriptor = segment.create()
    try:
        assert set(os.listdir("/dev/shm")) == before
        assert not os.get_inheritable(descriptor)
        assert "memfd" in os.readlink(Path("/proc/self/fd") / str(descriptor))
    finally:
        os.close(descriptor)


def test_two_mappings_see_the_same_bytes_and_only_written_pages_take_memory() -> None:
    descriptor = segment.create()
    with segment.attach(descriptor) as one, segment.attach(descriptor) as other:
        assert used_bytes(descriptor) == 0
        one[100:104] = b"abcd"
        assert other[100:104] == b"abcd"
        assert used_bytes(descriptor) == mmap.PAGESIZE
    os.close(descriptor)


def test_trim_gives_back_what_a_large_run_used_and_keeps_the_rest() -> None:
    descriptor = segment.create()
    large = segment.KEPT_BYTES + 3 * mmap.PAGESIZE + 5
    with segment.attach(descriptor) as memory:
        memory[:large] = b"\1" * large
        segment.trim(memory, large)
        assert used_bytes(descriptor) == segment.KEPT_BYTES
        assert memory[segment.KEPT_BYTES - 1] == 1
        assert memory[segment.KEPT_BYTES] == 0
    os.close(descriptor)


def test_small_runs_are_not_trimmed() -> None:
    descriptor = segment.create()
    with segment.attach(descriptor) as memory:
        memory[:4096] = b"\1" * 4096
        segment.trim(memory, 4096)
        assert memory[0] == 1
    os.close(descriptor)


def test_offsets_are_aligned_upwards() -> None:
    assert [segment.aligned(offset) for offset in (0, 1, 64, 65)] == [0, 64, 64, 128]
