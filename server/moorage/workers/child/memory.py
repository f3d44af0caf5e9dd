"""A device's memory and work: given back and waited for, so that what the ledger calls free or done really is."""

import ctypes
import gc
import sys


def release_cached_blocks(device: str) -> None:
    """Return torch's free blocks to a CUDA device."""
    torch = sys.modules.get("torch")
    if device != "cpu" and torch is not None:
        torch.cuda.empty_cache()


def release_freed_memory(device: str) -> None:
    """Return cached free blocks to the device, and freed heap to the system."""
    release_cached_blocks(device)
    if sys.platform == "linux":
        # With the thresholds raised, glibc keeps what is freed until it is told not to.
        ctypes.CDLL(None).malloc_trim(0)


def release_what_failed(device: str) -> None:
    """Return all that is free, after something found no memory, so that it may be tried again.

    It may have left cycles behind, of exceptions and the frames that caught them. They are young: to look through all
    that frameworks keep would take a tenth of a second.
    """
    gc.collect(1)
    release_freed_memory(device)


def take_own_stream(device: str, *, urgent: bool) -> None:
    """From now on, what this thread asks of a CUDA device waits for nothing that other threads asked of it.

    urgent: the device prefers it to what is not, wherever both have work for it. torch keeps a stream for each thread,
    and what is freed on one is used again on that one alone. Does nothing where torch has no CUDA.
    """
    torch = sys.modules.get("torch")
    if device != "cpu" and torch is not None and torch.cuda.is_available():
        torch.cuda.set_stream(torch.cuda.Stream(device, priority=-1 if urgent else 0))


def wait_for_stream(device: str) -> None:
    """Return when a CUDA device has done all that this thread asked: torch only queues work. Raises what that failed
    with.

    Without it a step would seem to be over before it began, and a turn that comes next would wait for many. What other
    threads asked may take longer, and is not waited for.
    """
    torch = sys.modules.get("torch")
    if device != "cpu" and torch is not None and torch.cuda.is_initialized():
        torch.cuda.current_stream(device).synchronize()


def wait_for_device(device: str) -> None:
    """Likewise, of all that was asked, on whatever stream: what comes next may be on any."""
    torch = sys.modules.get("torch")
    if device != "cpu" and torch is not None and torch.cuda.is_initialized():
        torch.cuda.synchronize(device)
