"""A model whose infer may yield its outputs, as a stepped model: every output is a step."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from moorage.authoring import Batch, BatchMember, Model, StartingRequest, Step, SteppedModel
from moorage.workers.runtimes.base import BrokenContract, CannotSuspend


class YieldingModel(SteppedModel):
    """Runs infer for each request by itself, and takes one output of each in a step.

    A generator can't be moved: a request that has to give way begins again.
    """

    def __init__(self, model: Model) -> None:
        self._model = model

    def start(self, inputs: Mapping[str, Any], request: StartingRequest) -> "_Yielded":
        member = BatchMember(request.id, request.rows, request.parameters, request.shapes)
        batch = Batch((member,), request.rows, request.shapes)
        return _Yielded(inputs, _outputs(partial(self._model.infer, inputs, batch)))

    def step(self, states: Sequence["_Yielded"]) -> Sequence[Step]:
        return [state.step() for state in states]

    def suspend(self, state: "_Yielded") -> "_Yielded":
        raise CannotSuspend

    def resume(self, state: "_Yielded") -> "_Yielded":
        return state


class _Yielded:
    """One request. inputs: what is known of the memory that it keeps."""

    def __init__(self, inputs: Mapping[str, Any], outputs: Iterator[Mapping[str, Any]]) -> None:
        self.inputs = inputs
        self._outputs = outputs

    def step(self) -> Step:
        """The next output. What it raises is this request's own."""
        try:
            return Step(next(self._outputs))
        except StopIteration:
            return Step(done=True)
        except Exception as error:
            return Step(error=error)


def _outputs(infer: "partial[Any]") -> Iterator[Mapping[str, Any]]:
    """What infer returned, or yields. It is called with the first step, whose memory is measured."""
    outputs = infer()
    if isinstance(outputs, Mapping):
        yield outputs
    elif isinstance(outputs, Iterator):
        yield from outputs
    else:
        raise BrokenContract(f"infer must return a dict of outputs, or yield them, got {type(outputs).__name__}")
