"""What a model author imports. Light: nothing here imports a framework.

A model is a class in `model.py` inside a version folder of the repository:

    from moorage import Model

    class Doubler(Model):
        def infer(self, inputs, batch):
            return {"y": inputs["x"] * 2}

One whose requests are long, and may have to give way between steps, is a SteppedModel instead.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from moorage.domain.request import ParameterValue
from moorage.domain.tensor import TensorSpec

__all__ = [
    "Batch",
    "BatchMember",
    "InvalidInput",
    "Loadable",
    "Model",
    "ModelContext",
    "StartingRequest",
    "Step",
    "SteppedModel",
    "TensorSpec",
]


class InvalidInput(Exception):
    """To be raised where a caller's data is at fault, and not the model: INVALID_ARGUMENT with this message.

    Of those who share a run only who is at fault is told so: it is tried again in halves, as after any exception.
    """


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
    """One caller's part of a batch: its own id (may be empty), how many rows, and its parameters.

    shapes: of its own inputs, with the batch axis: of one that was padded, as it came, without the padding.
    """

    id: str
    rows: int
    parameters: Mapping[str, ParameterValue]
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Batch:
    """One run.

    requests: its members, in the order of their rows.
    rows: their sum.
    shapes: of every input, with the batch axis. Of one with `padding`, padding included; of one with `ragged`, -1
    stands for what may differ from request to request.
    """

    requests: Sequence[BatchMember]
    rows: int
    shapes: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class StartingRequest(BatchMember):
    """The request that a stepped model begins."""


@dataclass(frozen=True, slots=True)
class Step:
    """What a step did for one request.

    outputs: by name, as `Model.infer` returns them, with the rows of that request alone. They are due with the last
        step. Where model.toml says `decoupled = true`, those of every step are sent at once, and none are due.
    done: whether it was the last.
    error: what went wrong with this request, and not with the others: raised, it would end all of them.
    """

    outputs: Mapping[str, Any] | None = None
    done: bool = False
    error: BaseException | None = None


class Loadable:
    """What every model has. All methods run in a worker process, never in the server's.

    A model's runs come one at a time, from one thread; other models of the same worker run beside it. Where model.toml
    says `instances = 2` or more, so many runs come at once, from as many threads, each always from the same: what infer
    changes of the object must then be guarded. All other methods are called while no run is under way.
    An exception fails the requests of that run with INTERNAL and an error id; its traceback goes to the log. See
    InvalidInput for what is no fault of the model.
    """

    def load(self, context: ModelContext) -> None:
        """Bring the weights to `context.device`. Called once, before the first run."""

    def unload(self) -> None:
        """Release what does not go away with the object itself. Optional."""

    def offload(self) -> None:
        """Free the device: keep the weights elsewhere until `restore`. Called between runs. Optional, like restore.

        The default, which the worker brings, moves every module and tensor that the object holds.
        """
        raise NotImplementedError("the default is the worker's: define offload and restore without calling it")

    def restore(self) -> None:
        """Undo `offload`: the next call is a run. The default moves back what the default of offload moved."""
        raise NotImplementedError("the default is the worker's: define offload and restore without calling it")


class Model(Loadable):
    """Base class of a model that answers a batch at once."""

    def infer(self, inputs: Mapping[str, Any], batch: Batch) -> Mapping[str, Any]:
        """Compute one batch.

        inputs: by name, a torch tensor on the device, batched on its first axis; a BYTES input is a flat list
            of bytes in row-major order. Tensors are valid until infer returns: keep a copy, not a view.
            An input declared with `ragged = true` is a list of these, one for each of batch.requests, even where
            there is but one. One declared with `padding` is a single tensor, in which each request's rows are filled
            up at the end of every dimension to the size of the largest in the batch; how large each was is in its
            `shapes`.
        Returns the outputs by name, each with the declared datatype and shape and as many rows as came in
            (a BYTES output: nested lists of bytes or str, or a flat list where no dimension is -1).
        With `decoupled = true` in model.toml it may yield any number of these instead, and each is sent as it comes.
            Every request is then computed by itself, and batch.requests has one member. Between two outputs others
            have their turn; one that has to give way to higher priority begins again, and what was sent is not sent
            again: so it must yield the same each time. No context of torch's (autocast, say) may reach over a yield:
            others compute before the next. What it keeps beside its inputs, `[memory] state` has to say.
        Cancellation: a run that has started is not interrupted; its result is dropped. A generator is closed.
        """
        raise NotImplementedError(f"{type(self).__name__} must define infer(inputs, batch)")


class SteppedModel(Loadable):
    """Base class of a model that works on a request in steps, keeping a state of it between them.

    A step serves several requests together; they join and leave between steps, and there a request can be made to
    wait. A state is any object; the worker forgets it when its request is done or given up.
    """

    def start(self, inputs: Mapping[str, Any], request: StartingRequest) -> Any:
        """Begin one request; returns its state, of which no step has been done yet.

        inputs: as `Model.infer` gets them, of this request alone. They are copies, and last as long as they are kept.
        """
        raise NotImplementedError(f"{type(self).__name__} must define start(inputs, request)")

    def step(self, states: Sequence[Any]) -> Sequence[Step]:
        """Do one step of every request; returns a Step each, in the same order. States are changed in place.

        If it raises, the states of all these requests are lost, and each is tried again from its start by itself.
        """
        raise NotImplementedError(f"{type(self).__name__} must define step(states)")

    def state_bytes(self, state: Any) -> int:
        """Bytes of the device that a state holds. The default, which the worker brings, counts tensors and arrays."""
        raise NotImplementedError("the default is the worker's: define state_bytes without calling it")

    def suspend(self, state: Any) -> Any:
        """Free the device: returns the state as it is kept on the host. Optional, like resume.

        The default, which the worker brings, moves every tensor that it finds in the state: in dicts, lists, tuples,
        dataclasses and attributes.
        """
        raise NotImplementedError("the default is the worker's: define suspend and resume without calling it")

    def resume(self, state: Any) -> Any:
        """Undo `suspend`: takes what it returned, and returns the state as steps take it."""
        raise NotImplementedError("the default is the worker's: define suspend and resume without calling it")
