"""How much main memory runs take, by what the kernel says of this process: Linux with glibc."""

import ctypes
import gc
import mmap
import os
import resource
from dataclasses import dataclass

from moorage.workers.child.meters import Taken

_STATUS = "/proc/self/status"
# What a process takes meanwhile that is not the run's: of the interpreter, and whole pages. A device that is full of
# weights must not seem to have no room for a run that takes nothing.
_OWN_BYTES = 96 * 1024
_KIB = 1024

_M_TOP_PAD = -2
_M_MMAP_THRESHOLD = -3
# As glibc has both by itself.
_USUAL_BYTES = 128 * 1024
# Blocks from this size on are mapped one by one while a run is measured.
_MAPPED_FROM_BYTES = 16 * 1024
# How glibc marks such a block, in the size that stands before it.
_IS_MAPPED = 2
_LARGEST_HOLE_BYTES = 16 * 1024 * 1024
_MOST_HOLES = 10_000
# The kernel counts resident pages by processor, and adds up when one of them has so many (its percpu_counter_batch).
_UNCOUNTED_PAGES = 32


class ResidentMeter:
    """The most that a run has of memory at once, of whichever library.

    The heap alone would tell what it has touched, which is up to twice of that, and depends on which holes runs before
    have left in it. So free heap and garbage are given back first, and while a run is measured blocks are mapped one by
    one, and holes of the heap withheld. Then the most resident pages are what the run had at most, but for those that
    the kernel has not added up yet, some for each processor. Within that the most address space, which it counts
    exactly, says how much it was.

    Pages of files and of shared memory are left out, as inputs and outputs are in a lane's segment; and so is as much
    as a run takes that does nothing. This costs a run some tenths of a millisecond, and new pages for each block.
    """

    is_cheap = False

    def __init__(self) -> None:
        """Raises OSError where the kernel does not tell."""
        self._library = ctypes.CDLL(None)
        self._slack_bytes = _UNCOUNTED_PAGES * mmap.PAGESIZE * len(os.sched_getaffinity(0))
        self._before = _Memory(0, 0, 0, 0, 0)
        self._filler: mmap.mmap | None = None
        self._holes: list[int] = []
        self._library.malloc.restype = ctypes.c_void_p
        self._library.malloc.argtypes = [ctypes.c_size_t]
        self._library.free.argtypes = [ctypes.c_void_p]
        self.start(thorough=False)
        self.taken()
        self.stop()

    def start(self, *, thorough: bool) -> None:
        # What runs leave is mostly young. To look at all there is takes a tenth of a second where much is loaded: once.
        if thorough and not gc.get_freeze_count():
            gc.collect()
            gc.freeze()
        gc.collect(2 if thorough else 1)
        self._library.mallopt(_M_MMAP_THRESHOLD, _MAPPED_FROM_BYTES)
        self._library.mallopt(_M_TOP_PAD, 0)
        self._library.malloc_trim(0)
        # Where address space is bounded the run may want all of it.
        bounded = resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY
        if not bounded:
            self._withhold_holes()
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")  # from here on the most resident pages are counted anew: proc(5)
        self._filler = None if bounded else _filled_up(_memory())
        self._before = _memory()

    def taken(self) -> Taken:
        after, before = _memory(), self._before
        mapped_bytes = max(0, after.mapped_bytes - before.mapped_bytes)
        resident_bytes = after.most_resident_bytes - before.resident_bytes - mapped_bytes
        space_bytes = after.most_space_bytes - before.space_bytes - mapped_bytes
        low_bytes, high_bytes = resident_bytes - self._slack_bytes, resident_bytes + self._slack_bytes
        taken_bytes = resident_bytes if self._filler is None else min(max(space_bytes, low_bytes), high_bytes)
        return Taken(max(0, taken_bytes - _OWN_BYTES))

    def stop(self) -> None:
        """Have the heap as it was, whether anything was measured or not."""
        self._library.mallopt(_M_MMAP_THRESHOLD, _usual("MALLOC_MMAP_THRESHOLD_"))
        self._library.mallopt(_M_TOP_PAD, _usual("MALLOC_TOP_PAD_"))
        if self._filler is not None:
            self._filler.close()
            self._filler = None
        while self._holes:
            self._library.free(self._holes.pop())

    def _withhold_holes(self) -> None:
        """Take what is free between blocks of the heap: glibc would use that first. It has no pages any more."""
        size_bytes = _LARGEST_HOLE_BYTES
        while size_bytes >= _MAPPED_FROM_BYTES and len(self._holes) < _MOST_HOLES:
            block = self._library.malloc(size_bytes)
            if block is None or _is_mapped(block):
                self._library.free(block)
                size_bytes //= 2
            else:
                self._holes.append(block)


def _is_mapped(block: int) -> bool:
    """Whether glibc has mapped a block by itself, and not taken it from the heap."""
    return ctypes.c_size_t.from_address(block - ctypes.sizeof(ctypes.c_size_t)).value & _IS_MAPPED > 0


def _usual(variable: str) -> int:
    """What glibc was told when the process began."""
    return int(os.environ.get(variable, _USUAL_BYTES))


def _filled_up(memory: "_Memory") -> mmap.mmap:
    """Address space without memory, up to the most that there ever was; the kernel does not count that anew."""
    missing_bytes = memory.most_space_bytes - memory.space_bytes
    return mmap.mmap(-1, max(mmap.PAGESIZE, missing_bytes), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=0)


@dataclass(frozen=True, slots=True)
class _Memory:
    """Of this process, now and at most. mapped_bytes: resident pages of files and of shared memory."""

    resident_bytes: int
    most_resident_bytes: int
    space_bytes: int
    most_space_bytes: int
    mapped_bytes: int


_FIGURES = frozenset({"VmRSS", "VmHWM", "VmSize", "VmPeak", "RssFile", "RssShmem"})


def _memory() -> _Memory:
    """Raises OSError where a figure is missing."""
    with open(_STATUS) as file:
        lines = (line.partition(":") for line in file)
        found = {name: int(rest.split()[0]) * _KIB for name, _, rest in lines if name in _FIGURES}
    if len(found) < len(_FIGURES):
        raise OSError(f"{_STATUS} lacks one of {', '.join(sorted(_FIGURES))}")
    return _Memory(
        found["VmRSS"], found["VmHWM"], found["VmSize"], found["VmPeak"], found["RssFile"] + found["RssShmem"]
    )
