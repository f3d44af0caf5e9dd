"""How this process's C heap gives memory back."""

import ctypes
import sys

_M_TRIM_THRESHOLD = -1
_M_TOP_PAD = -2
_M_MMAP_THRESHOLD = -3

# The most that glibc accepts: HEAP_MAX_SIZE / 2 on 64 bits.
_MMAP_THRESHOLD_BYTES = 32 * 1024 * 1024
_TRIM_THRESHOLD_BYTES = 256 * 1024 * 1024
_TOP_PAD_BYTES = 32 * 1024 * 1024


def keep_freed_memory() -> None:
    """Have glibc keep large freed blocks instead of mapping and unmapping them for every message.

    Requests of 600 KB are served about three times as fast with it. Without glibc this does nothing.
    """
    if sys.platform != "linux":
        return
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallopt"):
        return
    library.mallopt(_M_MMAP_THRESHOLD, _MMAP_THRESHOLD_BYTES)
    library.mallopt(_M_TRIM_THRESHOLD, _TRIM_THRESHOLD_BYTES)
    library.mallopt(_M_TOP_PAD, _TOP_PAD_BYTES)
