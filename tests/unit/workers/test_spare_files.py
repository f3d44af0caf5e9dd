"""Files for copies: taken, given up, and used again, within bounds."""

import errno
import os
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.workers.runtimes import spare_files
from moorage.workers.runtimes.spare_files import File, SpareFiles

KIB = 1024


@pytest.fixture
def files() -> Iterator[SpareFiles]:
    files = SpareFiles()
    yield files
    files.close()


def size_of(file: File) -> int:
    return os.fstat(file.fileno()).st_size


def test_a_file_that_was_given_up_is_taken_again_in_the_size_that_is_asked_for(files: SpareFiles) -> None:
    first = files.take(8 * KIB)
    os.pwrite(first.fileno(), b"before", 0)
    files.give_up(first)
    smaller = files.take(4 * KIB)
    assert smaller.file is first.file
    assert size_of(smaller) == smaller.size_bytes == 4 * KIB
    files.give_up(smaller)
    larger = files.take(16 * KIB)
    assert larger.file is first.file
    assert size_of(larger) == larger.size_bytes == 16 * KIB
    files.give_up(larger)


def test_the_smallest_that_is_large_enough_is_taken_first(files: SpareFiles) -> None:
    spare = [files.take(size_bytes) for size_bytes in (16 * KIB, 4 * KIB, 8 * KIB)]
    for file in spare:
        files.give_up(file)
    taken = [files.take(size) for size in (5 * KIB, 20 * KIB, 1)]
    assert [file.file for file in taken] == [spare[n].file for n in (2, 0, 1)]
    for file in taken:
        files.give_up(file)


@given(sizes=st.lists(st.integers(0, 20), min_size=1, max_size=10))
def test_no_more_is_kept_than_the_bound_says(sizes: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spare_files, "SPARE_BYTES", 16)
        files = SpareFiles()
        taken = [files.take(size_bytes) for size_bytes in sizes]
        for file in taken:
            files.give_up(file)
        kept = [file for file in taken if not file.file.closed]
        assert sum(file.size_bytes for file in kept) <= 16
        assert taken[-1] in kept or taken[-1].size_bytes > 16
        files.close()
        assert all(file.file.closed for file in taken)


def test_spare_files_make_way_where_the_disk_is_full(files: SpareFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = files.take(KIB), files.take(KIB)
    files.give_up(one)
    files.give_up(other)

    def reserve(descriptor: int, offset: int, size_bytes: int) -> None:
        if not (one.file.closed and other.file.closed):
            raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(os, "posix_fallocate", reserve)
    larger = files.take(2 * KIB)
    assert larger.size_bytes == 2 * KIB
    files.give_up(larger)


def test_a_full_disk_is_told_and_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int, offset: int, size_bytes: int) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="no space"):
        SpareFiles().take(KIB)
    assert len(os.listdir("/proc/self/fd")) == before
