"""The scheduler: one event in, the actions that follow from it out."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, assert_never

from moorage.domain.errors import ModelNotFound
from moorage.domain.model import ModelKey, ModelState, SharePolicy
from moorage.domain.request import InferenceRequest
from moorage.scheduling import events, integrity, timers
from moorage.scheduling.actions import Action
from moorage.scheduling.building import Building
from moorage.scheduling.candidates import Candidates
from moorage.scheduling.claims import Claim
from moorage.scheduling.closing import Closing
from moorage.scheduling.copies import Copies
from moorage.scheduling.departures import ON_THE_MOVE, Departures
from moorage.scheduling.dispatch import Dispatch
from moorage.scheduling.explain import Explanation
from moorage.scheduling.explaining import Explaining
from moorage.scheduling.holds import Holds
from moorage.scheduling.ladder import Ladder
from moorage.scheduling.lines import Lines
from moorage.scheduling.loads import Loads
from moorage.scheduling.losses import Losses
from moorage.scheduling.patience import Patience
from moorage.scheduling.pausing import Pauses
from moorage.scheduling.policy import MOORAGE, Policy
from moorage.scheduling.ready import Ready
from moorage.scheduling.records import ModelRecord, new_model
from moorage.scheduling.requests import Requests
from moorage.scheduling.room import Room
from moorage.scheduling.runs import Runs
from moorage.scheduling.shares import Shares
from moorage.scheduling.state import DeviceLimits, DeviceRecord, HoldKey, Limits, State
from moorage.scheduling.states import States
from moorage.scheduling.stepping import Steps
from moorage.scheduling.timers import Due
from moorage.scheduling.workers import Workers


class Scheduler:
    """All decisions about requests, memory and worker processes.

    Not safe for concurrent use: one owner calls `handle`, and looks at `state` only between calls.
    """

    def __init__(
        self, devices: Mapping[str, DeviceLimits], limits: Limits | None = None, policy: Policy = MOORAGE
    ) -> None:
        state = self.state = State(devices, limits or Limits(), policy)
        self._lines = Lines(state, Patience(state))
        self._requests = Requests(state)
        self._workers = Workers(state)
        self._runs = Runs(state, self._requests, self._workers)
        self._states = States(state, self._workers)
        self._steps = Steps(state, self._requests, self._runs, self._states)
        self._departures = Departures(state, self._requests, self._workers, self._lines)
        self._closing = Closing(state, self._requests, self._departures)
        self._pauses = Pauses(state, self._requests)
        candidates = Candidates(state, self._states)
        self._ladder = Ladder(state, self._requests, self._runs, self._steps, candidates, self._departures)
        self.room = Room(state, candidates, self._departures, self._states, self._workers)
        self._copies = Copies(state, candidates, self._departures)
        self._loads = Loads(state, self._requests, self._workers, self._departures, self.room)
        self._explaining = Explaining(state, self._loads, self.room)
        self._building = Building(state, self._requests, self._workers, self._departures, self.room)
        self._losses = Losses(state, self._requests, self._runs, self._steps, self._workers, self._departures)
        self._holds = Holds(state)
        self._shares = Shares(state, self._requests)
        ready = Ready(state, self._requests, self._runs, self._steps, self.room)
        self._dispatch = Dispatch(state, ready, self._loads, self._holds, self.room)
        self._handlers: dict[type, Callable[[Any, float], None]] = {
            events.RequestsArrived: lambda event, now: self._requests_arrived(event.requests, now),
            events.RequestCancelled: lambda event, now: self._requests.cancelled(event.request_id),
            events.RequestPaused: lambda event, now: self._pauses.pause(event.request_id, now),
            events.RequestResumed: lambda event, now: self._pauses.resume(event.request_id),
            events.RunFinished: lambda event, now: self._runs.finished(event.run_id, event.result, now),
            events.RunFailed: self._run_failed,
            events.StepFinished: self._steps.finished,
            events.StatesSuspended: lambda event, now: self._states.suspended(event.key, event.request_ids),
            events.StatesDropped: lambda event, now: self._states.dropped(event.key, event.request_ids),
            events.ModelRegistered: self._model_registered,
            events.LoadRequested: lambda event, now: self._loads.request(event.key, now, may_evict=event.may_evict),
            events.UnloadRequested: self._unload_requested,
            events.ModelLoaded: self._model_loaded,
            events.ModelLoadFailed: lambda event, now: self._building.failed(event.key, event.error, now),
            events.ModelUnloaded: lambda event, now: self._departures.unloaded(event.key, event.retained_bytes),
            events.ModelOffloaded: self._model_offloaded,
            events.ModelOffloadFailed: lambda event, now: self._departures.offload_failed(event.key, now),
            events.ModelRestored: self._model_restored,
            events.ModelRestoreFailed: lambda event, now: self._building.restore_failed(event.key, now),
            events.CapacityChanged: lambda event, now: self._shares.capacity_changed(
                event.device, event.capacity_bytes
            ),
            events.ShareChanged: lambda event, now: self._shares.changed(event.key, event.share),
            events.HoldRequested: self._holds.requested,
            events.HoldReleased: lambda event, now: self._holds.released(event.hold_id),
            events.WorkerUp: lambda event, now: self._workers.up(event.worker, now),
            events.WorkerLost: lambda event, now: self._losses.worker_lost(event.worker, event.reason, now),
            events.TimeReached: lambda event, now: None,
            events.DrainStarted: self._drain_started,
        }
        self._when_due: dict[type, Callable[[Any, float], None]] = {
            timers.RequestDue: lambda due, now: self._requests.expired(due.request_id, now),
            timers.RunDue: lambda due, now: self._runs.overdue(due.run_id),
            timers.LoadDue: lambda due, now: self._loads.overdue(due.key, now),
            timers.MoveDue: lambda due, now: self._departures.overdue(due.key, now),
            timers.StatesDue: lambda due, now: self._states.overdue(due.key, now),
            timers.CompanyDue: lambda due, now: self._touch(due.key),
            timers.GuardDue: lambda due, now: state.stir(due.device),
            timers.HoldDue: lambda due, now: self._holds.overdue(due.hold_id, now),
            timers.PauseDue: lambda due, now: self._pauses.overdue(due.request_id, now),
            timers.RestartDue: lambda due, now: self._workers.restart_due(due.worker, now),
        }

    @property
    def next_wake_s(self) -> float | None:
        """When to send TimeReached if nothing else happens before; None for never."""
        return self.state.timers.next_s

    def handle(self, event: events.Event, now: float) -> list[Action]:
        """Take in what happened, and decide. `now` is monotonic seconds, never less than before.

        What is due comes first, even where its wake-up is late: expired work is never run.
        """
        for due in self.state.timers.take_due(now):
            self._when_due[type(due)](due, now)
        self._handlers[type(event)](event, now)
        self._follow_up(now)
        self.state.timers.compact(self._matters)
        actions = self.state.actions
        self.state.actions = []
        return actions

    def _follow_up(self, now: float) -> None:
        """Let go on whoever the event made way for. The one place for it, so that no way leads past it.

        Whatever changes a model touches it, and whatever comes free stirs its device. Each round serves, begins or
        gives up something that waited, so the rounds end.
        """
        state = self.state
        while True:
            if state.closing:
                for key in tuple(state.closing):
                    self._closing.close_if_idle(key, now)
            while state.touched:
                key = next(iter(state.touched))
                del state.touched[key]
                model = state.models.get(key)
                if model is not None:
                    self._settle_touched(model, now)
            if not state.stirred:
                return
            device = next(iter(state.stirred))
            del state.stirred[device]
            self._dispatch.advance(device, now)
            if state.building:
                self._building.build_next(device, now)

    def _settle_touched(self, model: ModelRecord, now: float) -> None:
        """Find what a model that changed waits for now."""
        if model.state is ModelState.UNLOADED and not model.closing and (model.queue or model.wanted):
            self._loads.begin(model, now)
        elif self._requests.nobody_wants(model):
            self._departures.out(model, ModelState.UNLOADED, model.reason)
        elif model.active:
            self._states.flush(model, now)
        self._lines.refresh(model, now)

    def _requests_arrived(self, requests: Iterable[InferenceRequest], now: float) -> None:
        for request in requests:
            model = self._requests.arrived(request, now)
            if model is not None and not model.wanted:
                self._loads.request(model.key, now)

    def _run_failed(self, event: events.RunFailed, now: float) -> None:
        run = self._runs.end(event.run_id, now)
        if run is not None:
            self._ladder.failed(run, event.error, now)

    def _unload_requested(self, event: events.UnloadRequested, now: float) -> None:
        self._closing.unload(event.key)
        if event.key in self.state.models:
            self._pauses.hurry([self.state.models[event.key]], now)

    def _model_registered(self, event: events.ModelRegistered, now: float) -> None:
        assert event.key not in self.state.models, f"{event.key} registered twice"
        share = self._shares.inherited(event.key, event.spec)
        queue = self.state.new_queue(event.key, event.spec)
        self.state.models[event.key] = new_model(event.key, event.spec, event.footprint, share, queue)

    def _model_loaded(self, event: events.ModelLoaded, now: float) -> None:
        model = self._building.loaded(event.key, event.weights_bytes, event.load_s, now)
        if model is not None:
            model.stepped = event.stepped
            model.can_offload = event.can_offload
            self._runs.learn_warmup(model, event.rehearsed, now)
            self._trim_copies(event.key, now)

    def _model_offloaded(self, event: events.ModelOffloaded, now: float) -> None:
        self._departures.offloaded(event.key, event.retained_bytes)
        self._trim_copies(event.key, now)

    def _model_restored(self, event: events.ModelRestored, now: float) -> None:
        self._building.restored(event.key, event.restore_s, now)
        self._trim_copies(event.key, now)

    def _trim_copies(self, key: ModelKey, now: float) -> None:
        """Whoever came in or went to the host changes who is put out next, or what the host has room for."""
        model = self.state.models.get(key)
        if model is not None and model.device is not None:
            self._copies.trim(self.state.device_of(model), now)

    def _touch(self, key: ModelKey) -> None:
        if key in self.state.models:
            self.state.touch(self.state.models[key])

    def _matters(self, at_s: float, due: Due) -> bool:
        """Whether something would still come of a timer."""
        state = self.state
        # Nearly all are one of these two, and a class pattern takes three times as long.
        if isinstance(due, timers.RequestDue):
            return due.request_id in state.entries
        if isinstance(due, timers.RunDue):
            return due.run_id in state.runs
        match due:
            case timers.LoadDue(key) | timers.MoveDue(key) | timers.StatesDue(key):
                matters = key in state.models and self._model_matters(state.models[key], at_s, due)
            case timers.CompanyDue(key):
                matters = key in state.models and state.models[key].company_until_s == at_s
            case timers.GuardDue(device):
                matters = state.devices[device].guarded_until_s == at_s
            case timers.HoldDue(hold_id):
                matters = HoldKey(hold_id) in state.holds
            case timers.PauseDue(request_id):
                matters = request_id in state.entries
            case timers.RestartDue(name):
                matters = name in state.workers and state.workers[name].restart_at_s == at_s
            case _:
                assert_never(due)
        return matters

    def _model_matters(self, model: ModelRecord, at_s: float, due: Due) -> bool:
        match due:
            case timers.LoadDue():
                return model.load_deadline_s == at_s and model.state is not ModelState.RESIDENT
            case timers.MoveDue():
                return model.move_deadline_s == at_s and model.state in ON_THE_MOVE
            case _:
                return model.states_deadline_s == at_s and bool(model.active)

    def _drain_started(self, event: events.DrainStarted, now: float) -> None:
        self.state.draining = True
        self._pauses.hurry(self.state.models.values(), now)
        for device in self.state.devices.values():
            self.state.touched.update(device.gathering)  # nobody is waited for any more

    def explain(self, key: ModelKey, rows: int, priority: int, now: float) -> Explanation | None:
        """What would happen if a registered model were asked for so many rows now. Nothing does.

        priority: 0 for the model's own. None where no device matches the model.
        """
        return self._explaining.explain(key, rows, priority, now)

    def claim_of(self, model: ModelRecord, device: DeviceRecord, place: float) -> Claim:
        """What a model that waits on its device needs to go on."""
        return self._dispatch.claim_of(model, device, place)

    def changed_share(self, key: ModelKey, change: Callable[[SharePolicy], SharePolicy]) -> SharePolicy:
        """What a model's standing would be after a change, for a ShareChanged.

        Raises ModelNotFound, and MemoryExhausted where what is to be reserved is not free.
        """
        model = self.state.models.get(key)
        if model is None:
            raise ModelNotFound(key.name, str(key.version))
        share = change(model.share)
        missing_bytes = self._shares.can_change(key, share)
        if missing_bytes > 0:
            budget = self.state.device_of(model).budget
            free_bytes = share.reserved_bytes - missing_bytes
            raise budget.exhausted(f"a reservation for model '{key.name}'", share.reserved_bytes, free_bytes)
        return share

    def check_integrity(self) -> None:
        """Recompute everything that is kept twice. Raises AssertionError where it has drifted."""
        assert not self.state.stirred, "somebody was not told that something came free"
        assert not self.state.touched, "somebody's place in line was not found anew"
        integrity.check(self.state)
