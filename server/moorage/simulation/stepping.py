"""Stepped requests in a simulated process: how far each has come, and what it holds between steps."""

from collections.abc import Iterable

from moorage.domain.request import StepResult
from moorage.scheduling.actions import Run
from moorage.simulation.devices import Process


class Steps:
    """Counts the steps that requests have behind them."""

    def __init__(self) -> None:
        self._done: dict[int, int] = {}

    def begin(self, process: Process, run: Run, state_bytes: int) -> int:
        """Take in the members that have no state on the device; the bytes that come back from the host."""
        assert run.step is not None
        for entry in run.step.starting:
            self._done[entry.request.request_id] = 0
            process.states[entry.request.request_id] = state_bytes
        restored_bytes = 0
        for entry in run.step.resuming:
            size_bytes = process.suspended.pop(entry.request.request_id)
            process.states[entry.request.request_id] = size_bytes
            restored_bytes += size_bytes
        return restored_bytes

    def end(self, process: Process, run: Run, steps: int) -> tuple[StepResult, ...]:
        """A step is over for every member."""
        return tuple(self._stepped(process, entry.request.request_id, steps) for entry in run.entries)

    def _stepped(self, process: Process, request_id: int, steps: int) -> StepResult:
        self._done[request_id] += 1
        if self._done[request_id] < steps:
            return StepResult(request_id, done=False, state_bytes=process.states[request_id])
        self.drop(process, (request_id,))
        return StepResult(request_id, done=True, state_bytes=0)

    def suspend(self, process: Process, request_ids: Iterable[int]) -> None:
        for request_id in request_ids:
            process.suspended[request_id] = process.states.pop(request_id)

    def drop(self, process: Process, request_ids: Iterable[int]) -> None:
        for request_id in request_ids:
            process.states.pop(request_id, None)
            process.suspended.pop(request_id, None)
            self._done.pop(request_id, None)
