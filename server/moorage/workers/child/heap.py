"""The process's heap, where it is glibc's: kept out of what is measured."""

import ctypes
import os

from moorage.workers.child.memory import release_freed_memory

_M_TOP_PAD = -2
_M_MMAP_THRESHOLD = -3
# As glibc has both where a process was not told otherwise by variables of these names.
_USUAL_BYTES = 128 * 1024
# Blocks from this size on are mapped one by one while the heap is kept out.
_MAPPED_FROM_BYTES = 16 * 1024
_LARGEST_HOLE_BYTES = 16 * 1024 * 1024
_MOST_HOLES = 10_000
_PROBE_BYTES = 1024 * 1024


def is_glibcs() -> bool:
    """Whether what allocates is glibc, and not another library that was loaded before it, which keeps what is freed.

    Asked of glibc itself: in a program that is not position-independent, such as Debian's Python, the address of
    malloc is one in the program, whoever allocates.
    """
    library = ctypes.CDLL(None)
    if not (hasattr(library, "malloc_trim") and hasattr(library, "mallinfo2")):
        return False
    library.mallinfo2.restype = _Mallinfo
    library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    library.free.argtypes = [ctypes.c_void_p]
    before_bytes = library.mallinfo2().in_use_bytes
    block = library.malloc(_PROBE_BYTES)
    taken_bytes = library.mallinfo2().in_use_bytes - before_bytes
    library.free(block)
    return bool(taken_bytes >= _PROBE_BYTES // 2)  # others may have freed something meanwhile


class AsideHeap:
    """Has larger blocks mapped one by one, outside the heap, and keeps what is free there from being used.

    Only of the heap that the thread which asks allocates from: workers have one for all threads.
    """

    def __init__(self) -> None:
        self._library = library = ctypes.CDLL(None)
        library.malloc.restype = ctypes.c_void_p
        library.malloc.argtypes = [ctypes.c_size_t]
        library.free.argtypes = [ctypes.c_void_p]
        library.malloc_usable_size.restype = ctypes.c_size_t
        library.malloc_usable_size.argtypes = [ctypes.c_void_p]
        self._is_out = False
        self._holes: list[int] = []

    @property
    def withheld(self) -> int:
        """Blocks of the heap that nobody can use now."""
        return len(self._holes)

    def keep_out(self) -> None:
        """Give back, and have larger blocks mapped from here on. Blocks take longer then: their pages are new."""
        self._is_out = True
        self._library.mallopt(_M_MMAP_THRESHOLD, _MAPPED_FROM_BYTES)
        self._library.mallopt(_M_TOP_PAD, 0)
        release_freed_memory("cpu")
        self._withhold_holes()

    def let_in(self) -> None:
        """Have it as it was, if it was kept out."""
        if self._is_out:
            self._is_out = False
            self._library.mallopt(_M_MMAP_THRESHOLD, _usual_bytes("MALLOC_MMAP_THRESHOLD_"))
            self._library.mallopt(_M_TOP_PAD, _usual_bytes("MALLOC_TOP_PAD_"))
        while self._holes:
            self._library.free(self._holes.pop())

    def _withhold_holes(self) -> None:
        """Take what is free between blocks of the heap: glibc would use that first. It has no pages any more."""
        size_bytes = _LARGEST_HOLE_BYTES
        while size_bytes >= _MAPPED_FROM_BYTES and len(self._holes) < _MOST_HOLES:
            block = self._library.malloc(size_bytes)
            if block is None or self._is_mapped(block):
                self._library.free(block)
                size_bytes //= 2
            else:
                self._holes.append(block)

    def _is_mapped(self, block: int) -> bool:
        """Whether glibc has mapped a block by itself: before it stand two words then, and one in the heap."""
        return bool(self._library.malloc_usable_size(block) % (2 * ctypes.sizeof(ctypes.c_size_t)) == 0)


def _usual_bytes(variable: str) -> int:
    """What glibc was told when the process began; see mallopt(3)."""
    told = os.environ.get(variable, "")
    return int(told) if told.isdecimal() else _USUAL_BYTES


class _Mallinfo(ctypes.Structure):
    """struct mallinfo2 of mallinfo(3)."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    )

    @property
    def in_use_bytes(self) -> int:
        """Of blocks in the heap, and of those that are mapped one by one."""
        return int(self.uordblks) + int(self.hblkhd)
