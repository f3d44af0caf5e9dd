"""A ticket is one request under way. It completes exactly once: with a rendered result, an error, or a cancel."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from moorage.domain.errors import ContractBroken, InferenceFailed, MoorageError
from moorage.domain.request import InferenceRequest, RunResult, StepResult
from moorage.domain.tensor import OutputTensor
from moorage.engine.joining import Joining, Outputs, PiecesDiffer
from moorage.engine.statistics import Statistics
from moorage.scheduling.actions import Run
from moorage.scheduling.events import Event, RequestCancelled

log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Ticket(Generic[T]):
    """render turns views into shared memory into what the caller gets; it is called once, synchronously.

    emit: likewise takes each part of an answer that has several, but for the last.
    """

    request: InferenceRequest
    render: Callable[[tuple[OutputTensor, ...]], T]
    future: asyncio.Future[T]
    emit: Callable[[tuple[OutputTensor, ...]], None] | None = None

    def succeed(self, outputs: tuple[OutputTensor, ...]) -> None:
        """Render and hand over. Raises what render raises, and then the ticket is still open."""
        value = self.render(outputs)
        if not self.future.done():
            self.future.set_result(value)

    def fail(self, error: MoorageError) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class Tickets:
    """Those that are open, and what completes them. A split request has one ticket, whatever its pieces are.

    idle: is set while there are none. post: hands the scheduler an event. report: see Engine.report.
    """

    def __init__(self, post: Callable[[Event], None], report: Callable[[str, str], str]) -> None:
        self.statistics = Statistics()
        self.idle = asyncio.Event()
        self.idle.set()
        self._post = post
        self._report = report
        self._open: dict[int, Ticket[Any]] = {}
        self._joining: dict[int, Joining] = {}

    def __len__(self) -> int:
        return len(self._open)

    def open(self, ticket: Ticket[Any]) -> None:
        self._open[ticket.request.request_id] = ticket
        self.idle.clear()

    def take(self, request_id: int) -> Ticket[Any] | None:
        """Remove a ticket, as it is about to complete. None if it has completed already."""
        ticket = self._open.pop(request_id, None)
        if self._joining:
            self._joining.pop(request_id, None)
        if not self._open:
            self.idle.set()
        return ticket

    def succeed(self, run: Run, result: RunResult, now: float) -> None:
        """Complete the tickets of a run's members that still wait."""
        answered = []
        for index, entry in enumerate(run.entries):
            request, outputs = entry.request, partial(member_outputs, run, result, index)
            if request.piece is not None:
                self._succeed_piece(request, outputs, run, result, now)
            elif self._answer(request, outputs):
                answered.append(request)
        self.statistics.run_succeeded(run, result, answered, now)

    def succeed_stepped(self, request: InferenceRequest, run: Run, result: StepResult, now: float) -> None:
        """Complete the ticket of a stepped request. run: its last step."""
        outputs = partial(stepped_outputs, result)
        if request.piece is not None:
            self._succeed_piece(request, outputs, run, None, now)
        elif self._answer(request, outputs):
            self.statistics.stepped_succeeded(request, run, now)

    def emit(self, request: InferenceRequest, result: StepResult, now: float) -> None:
        """Hand over a part of an answer. Where that can't be rendered, its request fails."""
        ticket = self._open.get(request.request_id)
        if ticket is None or ticket.emit is None:
            return
        try:
            ticket.emit(stepped_outputs(result))
        except Exception:
            self._give_up(request, self._unrendered(request), now)

    def _answer(self, request: InferenceRequest, outputs: Callable[[], Outputs]) -> bool:
        """Complete a request's ticket with its outputs; False if its caller has gone, or they can't be rendered."""
        ticket = self.take(request.request_id)
        if ticket is None:
            return False
        try:
            ticket.succeed(outputs())
        except Exception:
            ticket.fail(self._unrendered(request))
            return False
        return True

    def _unrendered(self, request: InferenceRequest) -> InferenceFailed:
        log.exception("rendering a result of %s failed", request.model)
        name = request.model.name
        return InferenceFailed(name, self._report(name, "result could not be rendered"))

    def _succeed_piece(
        self, request: InferenceRequest, outputs: Callable[[], Outputs], run: Run, result: RunResult | None, now: float
    ) -> None:
        """Keep the outputs of a piece; with the last of them its request is answered. result: None of a stepped one."""
        assert request.piece is not None
        whole = request.piece.whole
        if whole.request_id not in self._open:
            return  # Another piece of it failed, or its caller has gone.
        joining = self._joining.get(whole.request_id)
        if joining is None:
            joining = self._joining[whole.request_id] = Joining(whole, run.started_s)
        joining.started_s = min(joining.started_s, run.started_s)  # of instances, the first may be the last to end
        try:
            is_last = joining.add(request.piece, request.rows, outputs())
        except PiecesDiffer as error:
            name = whole.model.name
            self._give_up(whole, ContractBroken(name, self._report(name, str(error)), str(error)), now)
            return
        except Exception:
            self._give_up(whole, self._unrendered(whole), now)
            return
        if result is not None:
            joining.ran(run.run_id, result)
        if is_last and self._answer(whole, joining.joined):
            if result is None:
                self.statistics.stepped_succeeded(whole, run, now)
            else:
                self.statistics.split_succeeded(whole, joining, now)

    def _give_up(self, whole: InferenceRequest, error: MoorageError, now: float) -> None:
        """Fail a request that may still wait or run, or pieces of it."""
        self.fail(whole, error, now)
        self._post(RequestCancelled(whole.request_id))

    def fail(self, request: InferenceRequest, error: MoorageError, now: float) -> None:
        """Complete a request's ticket with an error, if it still waits."""
        ticket = self.take(request.request_id)
        if ticket is not None:
            ticket.fail(error)
            self.statistics.failed(request, now)

    def fail_all(self, error: MoorageError) -> None:
        """Complete every ticket with an error: nobody may wait any more."""
        for request_id in list(self._open):
            ticket = self.take(request_id)
            if ticket is not None:
                ticket.fail(error)


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
    """The outputs of a stepped request's step: of one that is decoupled, the last may have none."""
    return tuple(OutputTensor(item.name, item.datatype, item.shape, item.data) for item in result.outputs)
