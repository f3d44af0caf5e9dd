"""runtime = "torch_export": model.pt2, written by torch.export.save."""

from collections.abc import Callable
from typing import Any

import torch

from moorage.authoring import ModelContext
from moorage.workers.runtimes.base import Runtime, RuntimeOptions
from moorage.workers.runtimes.modules import ModuleRuntime


class TorchExportRuntime(ModuleRuntime):
    """Loads with torch.export, which reads weights without running code."""

    def open_module(self, context: ModelContext) -> Callable[..., Any]:
        program = torch.export.load(context.path / "model.pt2")
        module = program.module()
        module.to(context.device)
        return module


def create(options: RuntimeOptions) -> Runtime:
    """A runtime for one model."""
    return TorchExportRuntime(options)
