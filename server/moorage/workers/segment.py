"""Shared memory of one lane: inputs from offset 0, outputs behind them.

It has no name in any file system, so nobody else can open it and nothing is left of it when the last process
that holds it ends, however it ends. It is sparse: only pages that were written to take memory.
"""

import mmap
import os
import tempfile

from moorage.domain.tensor import MAX_RUN_INPUT_BYTES

# Address space, not memory. One run's inputs and outputs must fit: half of it is for either.
SEGMENT_BYTES = 2 * MAX_RUN_INPUT_BYTES
ALIGNMENT_BYTES = 64
# After a run, pages beyond this are given back to the system, so that one large run does not hold them for ever.
KEPT_BYTES = 16 * 1024**2


def aligned(offset: int) -> int:
    """The next offset at which a tensor may begin."""
    return -(-offset // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def create() -> int:
    """A new segment's file descriptor. The caller closes it."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("moorage-lane", os.MFD_CLOEXEC)
    else:  # pragma: no cover - where there is no memfd: a file that is unlinked before anything is written
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, SEGMENT_BYTES)
    return descriptor


def attach(descriptor: int) -> mmap.mmap:
    """Map a segment for reading and writing. The descriptor may be closed afterwards."""
    return mmap.mmap(descriptor, SEGMENT_BYTES)


def trim(memory: mmap.mmap, used_bytes: int) -> None:
    """Give back what a run used beyond KEPT_BYTES. Call only when nobody reads there any more."""
    if used_bytes > KEPT_BYTES and hasattr(mmap, "MADV_REMOVE"):
        end = -(-used_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
        memory.madvise(mmap.MADV_REMOVE, KEPT_BYTES, end - KEPT_BYTES)
