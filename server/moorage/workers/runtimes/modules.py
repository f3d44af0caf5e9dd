"""What torchscript and torch_export share: a module called with tensors in the order of model.toml."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import torch

from moorage.authoring import Batch, ModelContext
from moorage.domain.tensor import Datatype
from moorage.workers.runtimes.base import BrokenContract, RuntimeOptions, refuse_ragged
from moorage.workers.runtimes.cuda_memory import own_segments
from moorage.workers.runtimes.torch_arrays import TorchArrays
from moorage.workers.runtimes.weights import Weights


class ModuleRuntime:
    """A loaded module. It gets the inputs by position and returns a tensor, a tuple in the order of the declared
    outputs, or a dict by name."""

    name: str
    states = None
    stepped = False

    def __init__(self, options: RuntimeOptions) -> None:
        if any(spec.datatype is Datatype.BYTES for spec in (*options.inputs, *options.outputs)):
            raise BrokenContract("a torch module takes and returns tensors: BYTES needs runtime = 'python'")
        refuse_ragged(options, self.name)
        self.arrays = TorchArrays("cpu")
        self._inputs = [spec.name for spec in options.inputs]
        self._outputs = [spec.name for spec in options.outputs]
        self._module: Callable[..., Any] | None = None
        self._weights = Weights("cpu")

    @abstractmethod
    def open_module(self, context: ModelContext) -> Callable[..., Any]:
        """The module, on the context's device."""

    def load(self, context: ModelContext) -> None:
        self.arrays = TorchArrays(context.device)
        self._weights = Weights(context.device)
        with own_segments(torch.device(context.device)):
            self._module = self.open_module(context)

    def infer(self, inputs: Mapping[str, Any], batch: Batch) -> Mapping[str, Any]:
        assert self._module is not None
        with torch.inference_mode():
            result = self._module(*[inputs[name] for name in self._inputs])
        if isinstance(result, dict):
            return result
        values = result if isinstance(result, tuple | list) else (result,)
        if len(values) != len(self._outputs):
            raise BrokenContract(f"the module returned {len(values)} outputs, declared are {self._outputs}")
        return dict(zip(self._outputs, values, strict=True))

    def weights_bytes(self) -> int:
        return self._weights.size_bytes(self._module)

    @property
    def can_offload(self) -> bool:
        return self._weights.can_park(self._module)

    def offload(self) -> int:
        return self._weights.park(self._module)

    def restore(self) -> None:
        self._weights.bring_back()

    def unload(self) -> None:
        self._module = None
        self._weights.close()

    def retained_bytes(self) -> int:
        return self._weights.retained_bytes()
