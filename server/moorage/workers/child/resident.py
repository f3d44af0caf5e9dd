"""How much main memory runs take, by what the kernel says of this process: Linux with glibc."""

import gc
import mmap
import os
import resource
from dataclasses import dataclass

from moorage.workers.child.heap import AsideHeap
from moorage.workers.child.memory import release_freed_memory
from moorage.workers.child.meters import Taken

_STATUS = "/proc/self/status"
# What a process takes meanwhile that is not the run's: of the interpreter, and whole pages. A device that is full of
# weights must not seem to have no room for a run that takes nothing.
_OWN_BYTES = 96 * 1024
_KIB = 1024
# The kernel counts resident pages by processor, and adds up when one of them has so many: its percpu_counter_batch.
_LEAST_UNCOUNTED_PAGES = 32


class ResidentMeter:
    """The most memory that a run has touched, of whichever library; or, thoroughly, the most that it had at once.

    Free heap is given back first, so that what a run touches counts again. That costs a tenth of a millisecond and
    more, and pages that the next run needs anew. Pages of files and of shared memory are left out, as inputs and
    outputs are in a lane's segment; and so is as much as a run takes that does nothing. It may touch one page, and the
    kernel add up a processor's with it: what is no more than that is nothing.

    What a run touches of the heap is up to twice of what it has at once, and depends on which holes runs before have
    left there. So, thoroughly, the heap is kept out of it: see AsideHeap. Then the most resident pages are what the run
    had at most, but for those that the kernel has not added up yet, some for each processor. Within that the most
    address space, which it counts exactly, says how much it was.
    """

    is_cheap = False

    def __init__(self) -> None:
        """Raises OSError where the kernel does not tell."""
        self._heap = AsideHeap()
        processors = os.cpu_count() or 1
        uncounted_bytes = _uncounted_bytes(processors)
        self._nothing_bytes = _OWN_BYTES + uncounted_bytes
        # How far off the difference of two figures of resident pages may be: either by what is not added up yet.
        self._slack_bytes = 2 * uncounted_bytes * processors
        self._before = _Memory(0, 0, 0, 0, 0)
        self._filler: mmap.mmap | None = None
        self.start(thorough=False)
        self.taken()
        self.stop()

    def start(self, *, thorough: bool) -> None:
        is_out = False
        if thorough:
            _collect_garbage()
            # Where address space is bounded the run may want all of it.
            is_out = resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY
        if is_out:
            self._heap.keep_out()
        else:
            release_freed_memory("cpu")
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")  # from here on the most resident pages are counted anew: proc(5)
        self._filler = _filled_up(_memory()) if is_out else None
        self._before = _memory()

    def taken(self) -> Taken:
        after, before = _memory(), self._before
        mapped_bytes = max(0, after.mapped_bytes - before.mapped_bytes)
        taken_bytes = after.most_resident_bytes - before.resident_bytes - mapped_bytes
        if self._filler is not None:
            space_bytes = after.most_space_bytes - before.space_bytes - mapped_bytes
            taken_bytes = min(max(space_bytes, taken_bytes - self._slack_bytes), taken_bytes + self._slack_bytes)
        elif taken_bytes <= self._nothing_bytes:
            return Taken(0)
        return Taken(max(0, taken_bytes - _OWN_BYTES))

    def stop(self) -> None:
        if self._filler is not None:
            self._filler.close()
            self._filler = None
        self._heap.let_in()


def _uncounted_bytes(processors: int) -> int:
    """The most resident pages of one processor that the kernel has not added up yet."""
    return max(_LEAST_UNCOUNTED_PAGES, 2 * processors) * mmap.PAGESIZE


def _collect_garbage() -> None:
    """What runs leave is mostly young. To look at all there is takes a tenth of a second where much is loaded: once."""
    if not gc.get_freeze_count():
        gc.collect()
        gc.freeze()
    gc.collect()


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
