"""What a model author imports. Light: nothing here imports a framework.

A model is a class in `model.py` inside a version folder of the repository:

    from moorage import Model

    class Doubler(Model):
        def infer(self, inputs, batch):
            return {"y": inputs["x"] * 2}
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moorage.domain.request import ParameterValue
from moorage.domain.tensor import TensorSpec

__all__ = ["Batch", "BatchMember", "Model", "ModelContext", "TensorSpec"]


@dataclass(frozen=True, slots=True)
class ModelContext:
    """What a model is told when it loads.

    device: where its tensors live, as torch spells it ("cpu", "cuda:0").
    path: its version folder. parameters: the [parameters] table of model.toml.
    """

    name: str
    version: int
    device: str
    path: Path
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class BatchMember:
    """One caller's part of a batch: its own id (may be empty), how many rows, and its parameters."""

    id: str
    rows: int
    parameters: Mapping[str, ParameterValue]


@dataclass(frozen=True, slots=True)
class Batch:
    """One run.

    requests: its members, in the order of their rows.
    rows: their sum. shapes: the declared shape of every input, with the batch axis.
    """

    requests: Sequence[BatchMember]
    rows: int
    shapes: Mapping[str, tuple[int, ...]]


class Model:
    """Base class of a model. All three methods run in a worker process, never in the server's.

    A model's runs come one at a time, from one thread; other models of the same worker run beside it.
    An exception fails the requests of that run with INTERNAL and an error id; its traceback goes to the log.
    """

    def load(self, context: ModelContext) -> None:
        """Bring the weights to `context.device`. Called once, before the first run."""

    def infer(self, inputs: Mapping[str, Any], batch: Batch) -> Mapping[str, Any]:
        """Compute one batch.

        inputs: by name, a torch tensor on the device, batched on its first axis; a BYTES input is a flat list
            of bytes in row-major order. Tensors are valid until infer returns: keep a copy, not a view.
        Returns the outputs by name, each with the declared datatype and shape and as many rows as came in
            (a BYTES output: nested lists of bytes or str, or a flat list where no dimension is -1).
        Cancellation: a run that has started is not interrupted; its result is dropped.
        """
        raise NotImplementedError(f"{type(self).__name__} must define infer(inputs, batch)")

    def unload(self) -> None:
        """Release what does not go away with the object itself. Optional."""
