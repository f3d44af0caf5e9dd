"""Ways to run a model. Each is loaded only when a model asks for it; only here may a framework be imported."""

from importlib import import_module

from moorage.workers.runtimes.base import (
    Arrays,
    BrokenContract,
    Payload,
    Runtime,
    RuntimeOptions,
    SharedMemory,
    is_out_of_memory,
)

__all__ = [
    "Arrays",
    "BrokenContract",
    "Payload",
    "Runtime",
    "RuntimeOptions",
    "SharedMemory",
    "create_runtime",
    "is_out_of_memory",
]

_MODULES = {
    "python": "python",
    "torchscript": "torchscript",
    "torch_export": "torch_export",
    "onnx": "onnx",
    "simulated": "simulated",
}


def create_runtime(name: str, options: RuntimeOptions) -> Runtime:
    """A runtime by its name in model.toml. Raises ImportError where its framework is not installed."""
    module = import_module(f"moorage.workers.runtimes.{_MODULES[name]}")
    runtime: Runtime = module.create(options)
    return runtime
