"""The scheduler: one event in, the actions that follow from it out."""

from collections.abc import Callable, Mapping
from typing import Any, assert_never

from moorage.domain.errors import WorkerLost
from moorage.domain.model import ModelKey, ModelState
from moorage.scheduling import events
from moorage.scheduling.actions import Action
from moorage.scheduling.loads import Loads
from moorage.scheduling.queue import ModelQueue
from moorage.scheduling.recovery import UNWELL_AFTER, restart_delay_s
from moorage.scheduling.requests import Requests
from moorage.scheduling.state import DeviceLimits, Limits, ModelRecord, State
from moorage.scheduling.timers import Due, LoadDue, RequestDue, RestartDue
from moorage.scheduling.workers import Workers


class Scheduler:
    """All decisions about requests, memory and worker processes.

    Not safe for concurrent use: one owner calls `handle`, and looks at `state` only between calls.
    """

    def __init__(self, devices: Mapping[str, DeviceLimits], limits: Limits | None = None) -> None:
        self.state = State(devices, limits or Limits())
        self._requests = Requests(self.state)
        self._workers = Workers(self.state)
        self._loads = Loads(self.state, self._requests, self._workers)
        self._handlers: dict[type, Callable[[Any, float], None]] = {
            events.RequestArrived: self._request_arrived,
            events.RequestCancelled: self._request_cancelled,
            events.RunFinished: self._run_finished,
            events.RunFailed: self._run_failed,
            events.ModelRegistered: self._model_registered,
            events.LoadRequested: lambda event, now: self._loads.request(event.key, now),
            events.UnloadRequested: lambda event, now: self._loads.unload(event.key, now),
            events.ModelLoaded: lambda event, now: self._loads.loaded(event.key, event.weights_bytes, now),
            events.ModelLoadFailed: lambda event, now: self._loads.load_failed(event.key, event.error, now),
            events.ModelUnloaded: lambda event, now: self._loads.unloaded(event.key, now),
            events.WorkerUp: self._worker_up,
            events.WorkerLost: self._worker_lost,
            events.TimeReached: self._time_reached,
            events.DrainStarted: self._drain_started,
        }

    @property
    def next_wake_s(self) -> float | None:
        """When to send TimeReached if nothing else happens before; None for never."""
        return self.state.timers.next_s

    def handle(self, event: events.Event, now: float) -> list[Action]:
        """Take in one event and say what follows. `now`: monotonic seconds, never less than the last."""
        self._handlers[type(event)](event, now)
        actions = self.state.actions
        self.state.actions = []
        return actions

    def _request_arrived(self, event: events.RequestArrived, now: float) -> None:
        model = self._requests.arrived(event.request, now)
        if model is None:
            return
        if model.state is ModelState.UNLOADED:
            self._loads.request(model.key, now)
        else:
            self._requests.start_next(model, now)

    def _request_cancelled(self, event: events.RequestCancelled, now: float) -> None:
        self._shorter(self._requests.cancelled(event.request_id), now)

    def _shorter(self, model: ModelRecord | None, now: float) -> None:
        """A queue lost a member: it may have been the one that others waited behind, or the last of a closing model."""
        if model is None:
            return
        if model.device is not None:
            if not model.queue:
                self.state.short_of_memory[model.device].pop(model.key, None)
            self._requests.start_waiting(model.device, now)
        self._loads.close_if_idle(model, now)

    def _run_finished(self, event: events.RunFinished, now: float) -> None:
        run = self.state.runs.get(event.run_id)
        self._requests.finished(event.run_id, event.result, now)
        self._after_run(run.key if run else None, now)

    def _run_failed(self, event: events.RunFailed, now: float) -> None:
        run = self.state.runs.get(event.run_id)
        self._requests.failed(event.run_id, event.error, now)
        self._after_run(run.key if run else None, now)

    def _after_run(self, key: ModelKey | None, now: float) -> None:
        if key is not None and self.state.models[key].closing:
            self._loads.close_if_idle(self.state.models[key], now)
        if self.state.pending_loads:
            self._loads.pump(now)
        self.state.timers.compact(self.state.entries)

    def _model_registered(self, event: events.ModelRegistered, now: float) -> None:
        assert event.key not in self.state.models, f"{event.key} registered twice"
        queue = ModelQueue(event.key.name, event.spec.queue)
        self.state.models[event.key] = ModelRecord(event.key, event.spec, queue)

    def _worker_up(self, event: events.WorkerUp, now: float) -> None:
        self._workers.up(event.worker, now)
        self._loads.pump(now)

    def _worker_lost(self, event: events.WorkerLost, now: float) -> None:
        before = self.state.workers.get(event.worker)
        loading = before.loading if before else None
        worker = self._workers.ended(event.worker, now)
        if worker is None:
            return
        for model in self.state.models_on(event.worker):
            if model.run is not None:
                self._requests.lost(model.run, event.reason)
            self._loads.worker_died(model, event.reason, culprit=model.key == loading, now=now)
            if worker.crashes >= UNWELL_AFTER:
                delay_s = restart_delay_s(worker.crashes)
                self._requests.fail_waiting(model, WorkerLost(event.reason, retry_after_s=delay_s))
        if worker.restart_at_s is None:
            self._workers.drop_if_unused(worker)
        self._loads.memory_freed(now)

    def _time_reached(self, event: events.TimeReached, now: float) -> None:
        for due in self.state.timers.take_due(now):
            self._due(due, now)

    def _due(self, due: Due, now: float) -> None:
        match due:
            case RequestDue(request_id):
                self._shorter(self._requests.expired(request_id, now), now)
            case LoadDue(key):
                self._loads.overdue(key, now)
            case RestartDue(worker):
                self._workers.restart_due(worker, now)
                self._loads.pump(now)
            case _:
                assert_never(due)

    def _drain_started(self, event: events.DrainStarted, now: float) -> None:
        self.state.draining = True

    def check_integrity(self) -> None:
        """Recompute every running sum from what is live. Raises AssertionError where one has drifted."""
        for budget in self.state.budgets.values():
            budget.check_integrity()
        for model in self.state.models.values():
            model.queue.check_integrity()
