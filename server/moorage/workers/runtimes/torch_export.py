"""runtime = "torch_export": model.pt2, written by torch.export.save."""

from collections.abc import Callable
from typing import Any

import torch

from moorage.authoring import ModelContext
from moorage.workers.runtimes.base import BrokenContract, Runtime, RuntimeOptions
from moorage.workers.runtimes.modules import ModuleRuntime
from moorage.workers.runtimes.pt2 import check_archive, weights_only


class TorchExportRuntime(ModuleRuntime):
    """Loads with torch.export, once the file is known to bring no code."""

    name = "torch_export"

    def open_module(self, context: ModelContext) -> Callable[..., Any]:
        path = context.path / "model.pt2"
        try:
            check_archive(path)
        except (RuntimeError, ValueError) as error:
            raise BrokenContract("model.pt2 is no archive of torch.export") from error
        with weights_only():
            program = torch.export.load(path)
        module = program.module()
        module.to(context.device)
        return module


def create(options: RuntimeOptions) -> Runtime:
    """A runtime for one model."""
    return TorchExportRuntime(options)
