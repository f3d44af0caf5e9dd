"""The scheduler: one event in, the actions that follow from it out."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, assert_never

from moorage.domain.model import ModelKey, ModelState
from moorage.domain.request import InferenceRequest
from moorage.scheduling import events, integrity
from moorage.scheduling.actions import Action
from moorage.scheduling.departures import Departures
from moorage.scheduling.loads import Loads
from moorage.scheduling.losses import Losses
from moorage.scheduling.queue import ModelQueue
from moorage.scheduling.requests import Requests
from moorage.scheduling.runs import Runs
from moorage.scheduling.state import DeviceLimits, Limits, ModelRecord, State
from moorage.scheduling.timers import Due, LoadDue, RequestDue, RestartDue, RunDue, UnloadDue
from moorage.scheduling.workers import Workers


class Scheduler:
    """All decisions about requests, memory and worker processes.

    Not safe for concurrent use: one owner calls `handle`, and looks at `state` only between calls.
    """

    def __init__(self, devices: Mapping[str, DeviceLimits], limits: Limits | None = None) -> None:
        self.state = State(devices, limits or Limits())
        self._requests = Requests(self.state)
        self._workers = Workers(self.state)
        self._runs = Runs(self.state, self._requests, self._workers)
        self._departures = Departures(self.state, self._requests, self._workers)
        self._loads = Loads(self.state, self._requests, self._runs, self._workers, self._departures)
        self._losses = Losses(self.state, self._requests, self._runs, self._workers, self._departures, self._loads)
        self._handlers: dict[type, Callable[[Any, float], None]] = {
            events.RequestsArrived: lambda event, now: self._requests_arrived(event.requests, now),
            events.RequestCancelled: lambda event, now: self._requests.cancelled(event.request_id),
            events.RunFinished: lambda event, now: self._runs.finished(event.run_id, event.result, now),
            events.RunFailed: lambda event, now: self._runs.failed(event.run_id, event.error, now),
            events.ModelRegistered: self._model_registered,
            events.LoadRequested: lambda event, now: self._loads.request(event.key, now),
            events.UnloadRequested: lambda event, now: self._departures.unload(event.key),
            events.ModelLoaded: lambda event, now: self._loads.loaded(event.key, event.weights_bytes, now),
            events.ModelLoadFailed: lambda event, now: self._loads.failed(event.key, event.error),
            events.ModelUnloaded: lambda event, now: self._departures.unloaded(event.key),
            events.WorkerUp: lambda event, now: self._workers.up(event.worker, now),
            events.WorkerLost: lambda event, now: self._losses.worker_lost(event.worker, event.reason, now),
            events.TimeReached: lambda event, now: None,
            events.DrainStarted: self._drain_started,
        }

    @property
    def next_wake_s(self) -> float | None:
        """When to send TimeReached if nothing else happens before; None for never."""
        return self.state.timers.next_s

    def handle(self, event: events.Event, now: float) -> list[Action]:
        """Take in one event and say what follows. `now`: monotonic seconds, never less than the last.

        What is due comes first, even where its wake-up is late: expired work is never run.
        """
        for due in self.state.timers.take_due(now):
            self._due(due, now)
        self._handlers[type(event)](event, now)
        if self.state.stirred or self.state.closing:
            self._follow_up(now)
        self.state.timers.compact(self._matters)
        actions = self.state.actions
        self.state.actions = []
        return actions

    def _follow_up(self, now: float) -> None:
        """Let go on whoever the event made way for. The one place for it, so that no way leads past it.

        Runs come before loads, as a load must not hold up what is resident. Each round ends, starts or gives up
        something that waited, so the rounds end.
        """
        stirred = self.state.stirred
        while True:
            for key in tuple(self.state.closing):
                self._departures.close_if_idle(key, now)
            if not stirred:
                return
            device = next(iter(stirred))
            del stirred[device]
            self._runs.start_waiting(device, now)
            self._loads.pump(device)

    def _requests_arrived(self, requests: Iterable[InferenceRequest], now: float) -> None:
        joined: dict[ModelKey, ModelRecord] = {}
        for request in requests:
            model = self._requests.arrived(request, now)
            if model is not None:
                joined[model.key] = model
        for model in joined.values():
            if model.state is ModelState.UNLOADED:
                self._loads.request(model.key, now)
            else:
                self._runs.start_next(model, now)

    def _model_registered(self, event: events.ModelRegistered, now: float) -> None:
        assert event.key not in self.state.models, f"{event.key} registered twice"
        queue = ModelQueue(event.key.name, event.spec.queue)
        self.state.models[event.key] = ModelRecord(event.key, event.spec, queue)

    def _due(self, due: Due, now: float) -> None:
        match due:
            case RequestDue(request_id):
                self._requests.expired(request_id, now)
            case RunDue(run_id):
                self._runs.overdue(run_id)
            case LoadDue(key):
                self._loads.overdue(key, now)
            case UnloadDue(key):
                self._departures.overdue(key, now)
            case RestartDue(worker):
                self._workers.restart_due(worker, now)
            case _:
                assert_never(due)

    def _matters(self, at_s: float, due: Due) -> bool:
        """Whether something would still come of a timer."""
        match due:
            case RequestDue(request_id):
                return request_id in self.state.entries
            case RunDue(run_id):
                return run_id in self.state.runs
            case LoadDue(key):
                model = self.state.models.get(key)
                return model is not None and model.state is ModelState.LOADING and model.load_deadline_s == at_s
            case UnloadDue(key):
                model = self.state.models.get(key)
                return model is not None and model.state is ModelState.UNLOADING and model.unload_deadline_s == at_s
            case RestartDue(name):
                worker = self.state.workers.get(name)
                return worker is not None and worker.restart_at_s == at_s
            case _:
                assert_never(due)

    def _drain_started(self, event: events.DrainStarted, now: float) -> None:
        self.state.draining = True

    def check_integrity(self) -> None:
        """Recompute everything that is kept twice. Raises AssertionError where it has drifted."""
        assert not self.state.stirred, "somebody was not told that something came free"
        integrity.check(self.state)
