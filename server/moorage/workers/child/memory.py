"""Giving freed memory back, so that what the ledger calls free really is."""

import ctypes
import sys


def release_freed_memory(device: str) -> None:
    """Return cached free blocks to the device, or, on a CPU, freed heap to the system."""
    torch = sys.modules.get("torch")
    if device != "cpu" and torch is not None:
        torch.cuda.empty_cache()
    if sys.platform == "linux":
        # With the thresholds raised, glibc keeps what is freed until it is told not to.
        ctypes.CDLL(None).malloc_trim(0)
