"""Drives the scheduler by hand and says what it decided in a few words."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from moorage.domain.errors import InferenceFailed, LoadFailed, MoorageError
from moorage.domain.model import ModelKey, ModelSpec, SharePolicy
from moorage.domain.request import InferenceRequest, StepResult
from moorage.scheduling import actions, events
from moorage.scheduling.entries import Entry
from moorage.scheduling.explain import Explanation
from moorage.scheduling.policy import MOORAGE, Policy
from moorage.scheduling.records import ModelRecord
from moorage.scheduling.scheduler import Scheduler
from moorage.scheduling.state import DeviceLimits, Limits
from tests.support.scheduling import ANSWER, MODEL, NO_LIMITS, RESULT, make_request, make_spec


class Core:
    """A scheduler and its clock. Every method sends one event and returns what was decided, in order."""

    def __init__(self, limits: Limits = NO_LIMITS, policy: Policy = MOORAGE, **capacity_bytes: int) -> None:
        self.now = 0.0
        devices = {
            name: DeviceLimits(size_bytes, run_slots=8) for name, size_bytes in (capacity_bytes or {"cpu": 100}).items()
        }
        self.scheduler = Scheduler(devices, limits, policy)
        self.decided: list[actions.Action] = []

    @classmethod
    def on(cls, device: DeviceLimits, limits: Limits = NO_LIMITS, policy: Policy = MOORAGE) -> "Core":
        """One device, "cpu", that has these limits."""
        core = cls()
        core.scheduler = Scheduler({"cpu": device}, limits, policy)
        return core

    @classmethod
    def with_context(cls, capacity_bytes: int, context_bytes: int) -> "Core":
        return cls.on(DeviceLimits(capacity_bytes, context_bytes, run_slots=8))

    def send(self, event: events.Event) -> list[str]:
        self.decided = self.scheduler.handle(event, self.now)
        self.scheduler.check_integrity()
        return [describe(action) for action in self.decided if not isinstance(action, actions.ModelChanged)]

    # What there is.

    def model(self, key: ModelKey = MODEL) -> ModelRecord:
        return self.scheduler.state.models[key]

    def free_bytes(self, device: str = "cpu") -> int:
        return self.scheduler.state.devices[device].budget.free_bytes

    def host_bytes(self) -> int:
        """What is leased beside the device."""
        return self.scheduler.state.devices["cpu"].host.leased_bytes

    def kinds(self) -> dict[str, int]:
        """What the device's bytes are leased for."""
        return self.scheduler.state.devices["cpu"].budget.by_kind()

    def errors(self) -> list[MoorageError]:
        """Those that the latest event led to."""
        found = [getattr(action, "error", None) for action in self.decided]
        return [error for error in found if error is not None]

    def explain(self, key: ModelKey = MODEL, rows: int = 1, priority: int = 0) -> Explanation:
        explanation = self.scheduler.explain(key, rows, priority, self.now)
        assert explanation is not None
        return explanation

    # Models come and go.

    def register(self, spec: ModelSpec | None = None) -> ModelKey:
        spec = spec or make_spec()
        key = ModelKey(spec.name, spec.version)
        self.send(events.ModelRegistered(key, spec))
        return key

    def resident(self, spec: ModelSpec | None = None, *, load_s: float = 0.0) -> ModelKey:
        """Register a model and bring it into memory."""
        key = self.register(spec)
        self.load(key)
        worker = self.model(key).worker
        assert worker is not None
        self.up(worker)
        weights = self.model(key).weights
        assert weights is not None
        assert self.loaded(key, weights.size_bytes, load_s)[:1] == [f"loaded {key}"]
        return key

    def load(self, key: ModelKey = MODEL, *, may_evict: bool = True) -> list[str]:
        return self.send(events.LoadRequested(key, may_evict))

    def unload(self, key: ModelKey = MODEL) -> list[str]:
        return self.send(events.UnloadRequested(key))

    def loaded(self, key: ModelKey = MODEL, weights_bytes: int = 10, load_s: float = 0.0) -> list[str]:
        model = self.scheduler.state.models.get(key)
        spec = model.spec if model is not None else make_spec()
        stepped, offloads = spec.simulated.steps > 1, bool(spec.parameters["offloads"])
        return self.send(events.ModelLoaded(key, weights_bytes, load_s, stepped, offloads))

    def load_failed(self, key: ModelKey = MODEL) -> list[str]:
        return self.send(events.ModelLoadFailed(key, LoadFailed(key.name, "broken")))

    def unloaded(self, key: ModelKey = MODEL, retained_bytes: int = 0) -> list[str]:
        return self.send(events.ModelUnloaded(key, retained_bytes))

    def offloaded(self, key: ModelKey = MODEL, retained_bytes: int = 0) -> list[str]:
        return self.send(events.ModelOffloaded(key, retained_bytes))

    def offload_failed(self, key: ModelKey = MODEL) -> list[str]:
        return self.send(events.ModelOffloadFailed(key))

    def restored(self, key: ModelKey = MODEL, restore_s: float = 0.0) -> list[str]:
        return self.send(events.ModelRestored(key, restore_s))

    def restore_failed(self, key: ModelKey = MODEL) -> list[str]:
        return self.send(events.ModelRestoreFailed(key, LoadFailed(key.name, "it did not come back")))

    # Requests come and go.

    def arrive(self, request: InferenceRequest) -> list[str]:
        return self.send(events.RequestsArrived((request,)))

    def ask(self, request_id: int, model: ModelKey = MODEL, *, priority: int = 0, rows: int = 1) -> list[str]:
        """A request arrives now."""
        return self.arrive(
            make_request(request_id, model=model, priority=priority, rows=rows, arrived_s=self.now, deadline_s=1e6)
        )

    def cancel(self, request_id: int) -> list[str]:
        return self.send(events.RequestCancelled(request_id))

    def pause(self, request_id: int) -> list[str]:
        return self.send(events.RequestPaused(request_id))

    def resume(self, request_id: int) -> list[str]:
        return self.send(events.RequestResumed(request_id))

    def finish(self, run_id: int, peak_bytes: int | None = None) -> list[str]:
        return self.send(events.RunFinished(run_id, replace(RESULT, peak_bytes=peak_bytes)))

    def fail(self, run_id: int) -> list[str]:
        return self.send(events.RunFailed(run_id, InferenceFailed("model", "id")))

    def step(
        self,
        key: ModelKey = MODEL,
        *,
        done: tuple[int, ...] = (),
        state: int | None = None,
        broken: tuple[int, ...] = (),
        seconds: float = 0.0,
    ) -> list[str]:
        """The step under way ends, having taken so long. state: what each keeps, unless it is done or broken.

        A decoupled model answers something to each.
        """
        self.now += seconds
        run, spec = self.model(key).run, self.model(key).spec
        assert run is not None
        kept_bytes = spec.simulated.state_bytes if state is None else state
        ids = [entry.request.request_id for entry in run.entries]
        results = [
            StepResult(
                request_id,
                done=request_id in done,
                state_bytes=0 if request_id in done + broken else kept_bytes,
                outputs=(ANSWER,) if spec.decoupled and request_id not in broken else (),
                error=InferenceFailed(key.name, "id") if request_id in broken else None,
            )
            for request_id in ids
        ]
        return self.send(events.StepFinished(run.run_id, tuple(results)))

    def suspended(self, *request_ids: int, key: ModelKey = MODEL) -> list[str]:
        return self.send(events.StatesSuspended(key, request_ids))

    def dropped(self, *request_ids: int, key: ModelKey = MODEL) -> list[str]:
        return self.send(events.StatesDropped(key, request_ids))

    # Workers, and the world outside.

    def up(self, worker: str = "cpu") -> list[str]:
        return self.send(events.WorkerUp(worker))

    def lose(self, worker: str = "cpu") -> list[str]:
        return self.send(events.WorkerLost(worker, "it died"))

    def recover(self, worker: str = "cpu") -> list[str]:
        """Wait out the back-off of a worker that died, and let it come up."""
        restart_at_s = self.scheduler.state.workers[worker].restart_at_s
        assert restart_at_s is not None
        decided = self.wait_until(max(self.now, restart_at_s))
        return decided + self.up(worker)

    def wait_until(self, now: float) -> list[str]:
        self.now = now
        return self.send(events.TimeReached())

    def hold(self, hold_id: int, size_bytes: int, *, priority: int = 3, patience_s: float = 1000.0) -> list[str]:
        return self.send(events.HoldRequested(hold_id, "cpu", size_bytes, priority, self.now + patience_s))

    def let_go(self, hold_id: int) -> list[str]:
        return self.send(events.HoldReleased(hold_id))

    def capacity(self, size_bytes: int) -> list[str]:
        return self.send(events.CapacityChanged("cpu", size_bytes))

    def share(self, share: SharePolicy, key: ModelKey = MODEL) -> list[str]:
        return self.send(events.ShareChanged(key, share))


def describe(action: actions.Action) -> str:
    return _WORDS[type(action)](action)


def _ids(entries: tuple[Entry, ...]) -> str:
    return " ".join(_name(entry.request) for entry in entries)


def _name(request: InferenceRequest) -> str:
    """A piece is named by its request and its rows: 7[4:8]."""
    if request.piece is None:
        return str(request.request_id)
    first_row = request.piece.first_row
    return f"{request.piece.whole.request_id}[{first_row}:{first_row + request.rows}]"


def _execute(action: actions.Execute) -> str:
    run = action.run
    if run.step is None:
        return f"execute {_ids(run.entries)}"
    going = tuple(entry for entry in run.entries if entry not in run.step.starting + run.step.resuming)
    parts = {"step": going, "starting": run.step.starting, "resuming": run.step.resuming}
    return " ".join(f"{word} {_ids(entries)}" for word, entries in parts.items() if entries)


def _load_settled(action: actions.LoadSettled) -> str:
    return f"not loaded {action.key}: {type(action.error).__name__}" if action.error else f"loaded {action.key}"


def _hold_settled(action: actions.HoldSettled) -> str:
    return f"no hold {action.hold_id}: {type(action.error).__name__}" if action.error else f"hold {action.hold_id}"


_WORDS: dict[type, Callable[[Any], str]] = {
    actions.Execute: _execute,
    actions.Succeed: lambda action: f"succeed {_ids(action.run.entries)}",
    actions.Fail: lambda action: f"fail {action.request.request_id}: {type(action.error).__name__}",
    actions.StartWorker: lambda action: f"start {action.worker}",
    actions.StopWorker: lambda action: f"stop {action.worker}",
    actions.KillWorker: lambda action: f"kill {action.worker}",
    actions.Load: lambda action: f"load {action.key} on {action.worker}",
    actions.Offload: lambda action: f"offload {action.key} on {action.worker}",
    actions.Restore: lambda action: f"restore {action.key} on {action.worker}",
    actions.Suspend: lambda action: f"suspend {' '.join(map(str, action.request_ids))}",
    actions.Drop: lambda action: f"drop {' '.join(map(str, action.request_ids))}",
    actions.SucceedStepped: lambda action: f"succeed {_name(action.request)}",
    actions.Emit: lambda action: f"emit {_name(action.request)}",
    actions.HoldSettled: _hold_settled,
    actions.Unload: lambda action: f"unload {action.key} on {action.worker}",
    actions.LoadSettled: _load_settled,
    actions.UnloadSettled: lambda action: f"unloaded {action.key}",
}
