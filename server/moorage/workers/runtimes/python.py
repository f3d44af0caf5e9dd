"""runtime = "python": a class in the version folder's model.py. The only runtime that runs code of the repository,
which is therefore trusted."""

import importlib.util
import sys
from collections.abc import Mapping
from typing import Any

import torch

from moorage.authoring import Batch, Model, ModelContext
from moorage.workers.runtimes.base import BrokenContract, Runtime, RuntimeOptions
from moorage.workers.runtimes.torch_arrays import TorchArrays, held_bytes


class PythonRuntime:
    """Finds the one subclass of Model that model.py defines, and runs it."""

    def __init__(self) -> None:
        self.arrays = TorchArrays("cpu")
        self._model: Model | None = None
        self._module_name = ""

    def load(self, context: ModelContext) -> None:
        self.arrays = TorchArrays(context.device)
        self._module_name = f"moorage_models.{context.name}_{context.version}_{id(self)}"
        self._model = self._find_class(context)()
        with torch.inference_mode():
            self._model.load(context)

    def _find_class(self, context: ModelContext) -> type[Model]:
        specification = importlib.util.spec_from_file_location(self._module_name, context.path / "model.py")
        assert specification is not None
        assert specification.loader is not None
        module = importlib.util.module_from_spec(specification)
        sys.modules[self._module_name] = module  # dataclasses and pickling of a model's own classes look here
        specification.loader.exec_module(module)
        classes = [
            item
            for item in vars(module).values()
            if isinstance(item, type) and issubclass(item, Model) and item.__module__ == module.__name__
        ]
        if len(classes) != 1:
            names = sorted(item.__name__ for item in classes)
            raise BrokenContract(f"model.py must define one subclass of moorage.Model, found {names or 'none'}")
        if classes[0].infer is Model.infer:
            raise BrokenContract(f"class {classes[0].__name__} in model.py does not define infer(inputs, batch)")
        return classes[0]

    def infer(self, inputs: Mapping[str, Any], batch: Batch) -> Mapping[str, Any]:
        assert self._model is not None
        with torch.inference_mode():
            return self._model.infer(inputs, batch)

    def weights_bytes(self) -> int:
        return held_bytes(self._model)

    def unload(self) -> None:
        model, self._model = self._model, None
        sys.modules.pop(self._module_name, None)
        if model is not None:
            model.unload()


def create(options: RuntimeOptions) -> Runtime:
    """A runtime for one model."""
    return PythonRuntime()
