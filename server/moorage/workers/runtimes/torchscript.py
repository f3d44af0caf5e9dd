"""runtime = "torchscript": model.pt, written by torch.jit.save. Its code is TorchScript's, never Python's."""

import warnings
from collections.abc import Callable
from typing import Any

import torch

from moorage.authoring import ModelContext
from moorage.workers.runtimes.base import Runtime, RuntimeOptions
from moorage.workers.runtimes.modules import ModuleRuntime


class TorchScriptRuntime(ModuleRuntime):
    """Loads with torch.jit."""

    name = "torchscript"

    def open_module(self, context: ModelContext) -> Callable[..., Any]:
        with warnings.catch_warnings():
            # torch announces that TorchScript gives way to torch.export; files in this format stay in use.
            warnings.simplefilter("ignore", DeprecationWarning)
            module: torch.jit.ScriptModule = torch.jit.load(  # type: ignore[no-untyped-call]
                context.path / "model.pt", map_location=context.device
            )
        module.eval()
        return module


def create(options: RuntimeOptions) -> Runtime:
    """A runtime for one model."""
    return TorchScriptRuntime(options)
