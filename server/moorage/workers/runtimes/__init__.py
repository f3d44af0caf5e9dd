"""Ways to run a model. Each is loaded only when a model asks for it; only here may a framework be imported."""

import sys
from importlib import import_module

from moorage.workers.runtimes.base import (
    Arrays,
    BrokenContract,
    CannotSuspend,
    LaneFull,
    Payload,
    Runtime,
    RuntimeOptions,
    SharedMemory,
    States,
    is_loss_of_device,
    is_out_of_memory,
)

__all__ = [
    "Arrays",
    "BrokenContract",
    "CannotSuspend",
    "LaneFull",
    "Payload",
    "Runtime",
    "RuntimeOptions",
    "SharedMemory",
    "States",
    "cached_bytes",
    "cap_device_memory",
    "create_runtime",
    "is_loss_of_device",
    "is_out_of_memory",
    "peak_since",
    "release_pinned_memory",
    "reserved_bytes",
    "start_peak",
]

_MODULES = {
    "python": "python",
    "torchscript": "torchscript",
    "torch_export": "torch_export",
    "onnx": "onnx",
    "simulated": "simulated",
}


def cap_device_memory(device: str, size_bytes: int) -> None:
    """Bound what this process takes of a CUDA device; more raises torch.OutOfMemoryError.

    Does nothing on a CPU, and before torch is loaded: what has no torch has none of its tensors.
    """
    if device != "cpu" and "torch" in sys.modules:
        import_module("moorage.workers.runtimes.cuda_memory").cap(device, size_bytes)


def reserved_bytes(device: str) -> int:
    """What torch holds of a CUDA device in this process, in use or not; 0 on a CPU, and before torch is loaded."""
    if device == "cpu" or "torch" not in sys.modules:
        return 0
    size_bytes: int = import_module("moorage.workers.runtimes.cuda_memory").reserved_bytes(device)
    return size_bytes


def cached_bytes(device: str) -> int:
    """What of that is free; likewise 0 where there is none."""
    if device == "cpu" or "torch" not in sys.modules:
        return 0
    size_bytes: int = import_module("moorage.workers.runtimes.cuda_memory").cached_bytes(device)
    return size_bytes


def start_peak(device: str) -> tuple[int, int] | None:
    """Have the most that torch takes of a CUDA device begin anew; allocated and reserved bytes now; None without it."""
    if "torch" not in sys.modules:
        return None
    before: tuple[int, int] = import_module("moorage.workers.runtimes.cuda_memory").start_peak(device)
    return before


def peak_since(device: str) -> tuple[int, int] | None:
    """The most of both since then; likewise None."""
    if "torch" not in sys.modules:
        return None
    most: tuple[int, int] = import_module("moorage.workers.runtimes.cuda_memory").peak_since(device)
    return most


def release_pinned_memory(device: str) -> None:
    """Give the host back what torch has pinned beside a CUDA device and nobody uses. It can take seconds."""
    if device != "cpu" and "torch" in sys.modules:
        import_module("moorage.workers.runtimes.cuda_memory").release_pinned_memory()


def create_runtime(name: str, options: RuntimeOptions) -> Runtime:
    """A runtime by its name in model.toml. Raises ImportError where its framework is not installed."""
    module = import_module(f"moorage.workers.runtimes.{_MODULES[name]}")
    runtime: Runtime = module.create(options)
    return runtime
