"""runtime = "python": a class in the version folder's model.py. The only runtime that runs code of the repository,
which is therefore trusted."""

import importlib.util
import sys
from collections.abc import Mapping
from typing import Any

import torch

from moorage.authoring import Batch, Loadable, Model, ModelContext, SteppedModel
from moorage.workers.runtimes.base import BrokenContract, Runtime, RuntimeOptions, refuse_what_steps_cannot
from moorage.workers.runtimes.cuda_memory import own_segments
from moorage.workers.runtimes.stepped import PythonStates, check_stepped
from moorage.workers.runtimes.torch_arrays import TorchArrays
from moorage.workers.runtimes.weights import Weights
from moorage.workers.runtimes.yielding import YieldingModel


class PythonRuntime:
    """Finds the one subclass of Model or SteppedModel that model.py defines, and runs it."""

    def __init__(self, options: RuntimeOptions) -> None:
        self.arrays = TorchArrays("cpu")
        self.states: PythonStates | None = None
        self._model: Loadable | None = None
        self._weights = Weights("cpu")
        self._module_name = ""
        self._options = options

    def load(self, context: ModelContext) -> None:
        self.arrays = TorchArrays(context.device)
        self._module_name = f"moorage_models.{context.name}_{context.version}_{id(self)}"
        kind = self._find_class(context)
        if issubclass(kind, SteppedModel) or self._options.decoupled:
            refuse_what_steps_cannot(self._options)
        self._model = kind()
        self._weights = Weights(context.device)
        with torch.inference_mode(), own_segments(torch.device(context.device)):
            self._model.load(context)
        if isinstance(self._model, SteppedModel):
            self.states = PythonStates(self._model, context.device)
        elif self._options.decoupled:
            assert isinstance(self._model, Model)
            self.states = PythonStates(YieldingModel(self._model), context.device)

    @property
    def stepped(self) -> bool:
        return self.states is not None

    def _find_class(self, context: ModelContext) -> type[Loadable]:
        specification = importlib.util.spec_from_file_location(self._module_name, context.path / "model.py")
        assert specification is not None
        assert specification.loader is not None
        module = importlib.util.module_from_spec(specification)
        sys.modules[self._module_name] = module  # dataclasses and pickling of a model's own classes look here
        specification.loader.exec_module(module)
        classes = [
            item
            for item in vars(module).values()
            if isinstance(item, type) and issubclass(item, Loadable) and item.__module__ == module.__name__
        ]
        if len(classes) != 1:
            names = sorted(item.__name__ for item in classes)
            raise BrokenContract(
                f"model.py must define one subclass of moorage.Model or moorage.SteppedModel, found {names or 'none'}"
            )
        _check_methods(classes[0])
        return classes[0]

    def infer(self, inputs: Mapping[str, Any], batch: Batch) -> Mapping[str, Any]:
        assert isinstance(self._model, Model)
        with torch.inference_mode():
            return self._model.infer(inputs, batch)

    def weights_bytes(self) -> int:
        return self._weights.size_bytes(self._model)

    @property
    def can_offload(self) -> bool:
        return self.weights_bytes() > 0 and (self._moves_itself() or self._weights.can_park(self._model))

    def offload(self) -> int:
        assert self._model is not None
        if not self._moves_itself():
            return self._weights.park(self._model)
        before_bytes = self.weights_bytes()
        with torch.inference_mode():
            self._model.offload()
        return max(0, before_bytes - self.weights_bytes())

    def restore(self) -> None:
        assert self._model is not None
        if not self._moves_itself():
            self._weights.bring_back()
            return
        with torch.inference_mode(), own_segments(self._weights.device):
            self._model.restore()
        self.weights_bytes()  # what it holds now is looked for later

    def _moves_itself(self) -> bool:
        return self._model is not None and type(self._model).offload is not Loadable.offload

    def unload(self) -> None:
        model, self._model = self._model, None
        sys.modules.pop(self._module_name, None)
        if self.states is not None:
            self.states.drop_all()
            self.states = None
        self._weights.close()
        if model is not None:
            model.unload()

    def retained_bytes(self) -> int:
        return self._weights.retained_bytes()


def _check_methods(kind: type[Loadable]) -> None:
    """Raises BrokenContract for a class that leaves out a method which has no default."""
    if issubclass(kind, SteppedModel):
        check_stepped(kind)
    elif not issubclass(kind, Model) or kind.infer is Model.infer:
        raise BrokenContract(f"class {kind.__name__} in model.py does not define infer(inputs, batch)")
    if (kind.offload is Loadable.offload) != (kind.restore is Loadable.restore):
        raise BrokenContract(f"class {kind.__name__} in model.py must define both offload and restore, or neither")


def create(options: RuntimeOptions) -> Runtime:
    """A runtime for one model."""
    return PythonRuntime(options)
