"""A ticket is one request under way. It completes exactly once: with a rendered result, an error, or a cancel."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from moorage.domain.errors import MoorageError
from moorage.domain.request import InferenceRequest, RunResult, StepResult
from moorage.domain.tensor import OutputTensor
from moorage.scheduling.actions import Run

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Ticket(Generic[T]):
    """render turns views into shared memory into what the caller gets; it is called once, synchronously."""

    request: InferenceRequest
    render: Callable[[tuple[OutputTensor, ...]], T]
    future: asyncio.Future[T]

    def succeed(self, outputs: tuple[OutputTensor, ...]) -> None:
        """Render and hand over. Raises what render raises, and then the ticket is still open."""
        value = self.render(outputs)
        if not self.future.done():
            self.future.set_result(value)

    def fail(self, error: MoorageError) -> None:
        if not self.future.done():
            self.future.set_exception(error)


def member_outputs(run: Run, result: RunResult, index: int) -> tuple[OutputTensor, ...]:
    """The part of a run's outputs that belongs to its member at index."""
    if len(run.entries) == 1:
        return tuple(OutputTensor(item.name, item.datatype, item.shape, item.data) for item in result.outputs)
    rows = run.entries[index].request.rows
    outputs = []
    for item in result.outputs:
        start = item.splits[index - 1] if index else 0
        shape = (rows, *item.shape[1:])
        outputs.append(OutputTensor(item.name, item.datatype, shape, item.data[start : item.splits[index]]))
    return tuple(outputs)


def stepped_outputs(result: StepResult) -> tuple[OutputTensor, ...]:
    """The outputs of a stepped request's last step."""
    return tuple(OutputTensor(item.name, item.datatype, item.shape, item.data) for item in result.outputs)
