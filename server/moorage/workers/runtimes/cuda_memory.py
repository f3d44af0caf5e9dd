"""CUDA memory of one worker: where models' weights lie, how much the process may take, and what it has cached, also of
pinned host memory."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

_ALLOCATOR_SETTINGS = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")


def why_no_segments(device: torch.device) -> str | None:
    """Why models on a device can't have segments of their own; None where they can."""
    if device.type != "cuda":
        return f"{device.type} is no CUDA device"
    for name in _ALLOCATOR_SETTINGS:
        if "expandable_segments:true" in os.environ.get(name, "").lower().replace(" ", ""):
            return f"{name} asks for expandable segments, which torch's memory pools don't go with"
    if not hasattr(torch.cuda, "use_mem_pool"):
        return f"torch {torch.__version__} has no memory pools"
    return None


class _Pool:
    """A memory pool as `use_mem_pool` asks for one: its number.

    torch.cuda.MemPool is that too. But where one is given up while another thread allocates in its own, as a restore
    is that ends during a load, torch ends the process: its destructor fails.
    """

    def __init__(self) -> None:
        self.id = torch.cuda.graph_pool_handle()


@contextmanager
def own_segments(device: torch.device) -> Iterator[None]:
    """What this thread allocates within lies in segments that nothing else will share.

    So a model that goes gives back whole segments, however the others came and went meanwhile. The pool is given up at
    the end, and its segments go as soon as they are empty: torch doesn't give cached blocks of a living pool back, not
    even when memory is short. For the same reason runs, whose memory all models can use in turn, have no pool.

    While any thread is within, torch gives back only what lies in pools that were given up: what runs have cached goes
    at the end.
    """
    if why_no_segments(device) is not None:
        yield
        return
    with torch.cuda.device(device):
        try:
            with torch.cuda.use_mem_pool(_Pool(), device):  # type: ignore[arg-type]
                yield
        finally:
            torch.cuda.empty_cache()


def cap(device: str, size_bytes: int) -> None:
    """The most that this process's tensors may take of a device; more is torch.OutOfMemoryError.

    Does nothing where torch has no CUDA: a model that wants it fails on its own, and the process goes on.
    """
    if not torch.cuda.is_available():
        return
    total_bytes = torch.cuda.get_device_properties(device).total_memory
    # torch takes a fraction, and rounds down what it makes of it: the last byte must not be lost on the way.
    torch.cuda.set_per_process_memory_fraction(min(1.0, (size_bytes + 1) / total_bytes), device)


def reserved_bytes(device: str) -> int:
    """What this process's tensors take of a device, and what is cached for more of them."""
    return torch.cuda.memory_reserved(device)


def cached_bytes(device: str) -> int:
    """What is cached alone: a part of a segment whose rest is in use counts, though it can't be given back."""
    stats = torch.cuda.memory_stats_as_nested_dict(device)
    if not stats:  # CUDA has not been used yet
        return 0
    size_bytes: int = stats["reserved_bytes"]["all"]["current"] - stats["allocated_bytes"]["all"]["current"]
    return size_bytes


def start_peak(device: str) -> tuple[int, int]:
    """Have the most begin anew; what this process's tensors take now, and what is taken of the device for them."""
    torch.cuda.reset_peak_memory_stats(device)
    return torch.cuda.memory_allocated(device), torch.cuda.memory_reserved(device)


def peak_since(device: str) -> tuple[int, int]:
    """The most of both since then."""
    return torch.cuda.max_memory_allocated(device), torch.cuda.max_memory_reserved(device)


def release_pinned_memory() -> None:
    """Give the host back what is pinned and not in use. Nothing, where torch has no way to."""
    empty = pinned_cache_emptier()
    if empty is not None and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        empty()


def pinned_cache_emptier() -> Callable[[], None] | None:
    """torch's function for that: public where this release has it, else the one that only builds for CUDA have."""
    public: Callable[[], None] | None = getattr(torch.accelerator, "empty_host_cache", None)
    return public if public is not None else getattr(torch._C, "_host_emptyCache", None)
