"""Drives the scheduler by hand and says what it decided in a few words."""

from collections.abc import Callable
from typing import Any

from moorage.domain.errors import InferenceFailed, LoadFailed
from moorage.domain.model import ModelKey, ModelSpec
from moorage.domain.request import InferenceRequest
from moorage.scheduling import actions, events
from moorage.scheduling.scheduler import Scheduler
from moorage.scheduling.state import DeviceLimits, Limits, ModelRecord
from tests.support.scheduling import MODEL, NO_LIMITS, RESULT, make_spec


class Core:
    """A scheduler and its clock. Every method sends one event and returns what was decided, in order."""

    def __init__(self, limits: Limits = NO_LIMITS, **capacity_bytes: int) -> None:
        self.now = 0.0
        devices = {name: DeviceLimits(size_bytes) for name, size_bytes in (capacity_bytes or {"cpu": 100}).items()}
        self.scheduler = Scheduler(devices, limits)

    @classmethod
    def with_context(cls, capacity_bytes: int, context_bytes: int) -> "Core":
        core = cls()
        core.scheduler = Scheduler({"cpu": DeviceLimits(capacity_bytes, context_bytes)})
        return core

    def send(self, event: events.Event) -> list[str]:
        decided = self.scheduler.handle(event, self.now)
        self.scheduler.check_integrity()
        return [describe(action) for action in decided if not isinstance(action, actions.ModelChanged)]

    def model(self, key: ModelKey = MODEL) -> ModelRecord:
        return self.scheduler.state.models[key]

    def free_bytes(self, device: str = "cpu") -> int:
        return self.scheduler.state.budgets[device].free_bytes

    def register(self, spec: ModelSpec | None = None) -> ModelKey:
        spec = spec or make_spec()
        key = ModelKey(spec.name, spec.version)
        self.send(events.ModelRegistered(key, spec))
        return key

    def resident(self, spec: ModelSpec | None = None) -> ModelKey:
        """Register a model and bring it into memory."""
        key = self.register(spec)
        self.load(key)
        worker = self.model(key).worker
        assert worker is not None
        self.up(worker)
        weights = self.model(key).weights
        assert weights is not None
        assert self.loaded(key, weights.size_bytes)[:1] == [f"loaded {key}"]
        return key

    def load(self, key: ModelKey = MODEL) -> list[str]:
        return self.send(events.LoadRequested(key))

    def unload(self, key: ModelKey = MODEL) -> list[str]:
        return self.send(events.UnloadRequested(key))

    def arrive(self, request: InferenceRequest) -> list[str]:
        return self.send(events.RequestsArrived((request,)))

    def cancel(self, request_id: int) -> list[str]:
        return self.send(events.RequestCancelled(request_id))

    def finish(self, run_id: int) -> list[str]:
        return self.send(events.RunFinished(run_id, RESULT))

    def fail(self, run_id: int) -> list[str]:
        return self.send(events.RunFailed(run_id, InferenceFailed("model", "id")))

    def up(self, worker: str = "cpu") -> list[str]:
        return self.send(events.WorkerUp(worker))

    def lose(self, worker: str = "cpu") -> list[str]:
        return self.send(events.WorkerLost(worker, "it died"))

    def loaded(self, key: ModelKey = MODEL, weights_bytes: int = 10) -> list[str]:
        return self.send(events.ModelLoaded(key, weights_bytes))

    def load_failed(self, key: ModelKey = MODEL) -> list[str]:
        return self.send(events.ModelLoadFailed(key, LoadFailed(key.name, "broken")))

    def unloaded(self, key: ModelKey = MODEL) -> list[str]:
        return self.send(events.ModelUnloaded(key))

    def wait_until(self, now: float) -> list[str]:
        self.now = now
        return self.send(events.TimeReached())

    def recover(self, worker: str = "cpu") -> list[str]:
        """Wait out the back-off of a worker that died, and let it come up."""
        restart_at_s = self.scheduler.state.workers[worker].restart_at_s
        assert restart_at_s is not None
        decided = self.wait_until(max(self.now, restart_at_s))
        return decided + self.up(worker)


def describe(action: actions.Action) -> str:
    return _WORDS[type(action)](action)


def _ids(run: actions.Run) -> str:
    return " ".join(str(entry.request.request_id) for entry in run.entries)


def _load_settled(action: actions.LoadSettled) -> str:
    return f"not loaded {action.key}: {type(action.error).__name__}" if action.error else f"loaded {action.key}"


_WORDS: dict[type, Callable[[Any], str]] = {
    actions.Execute: lambda action: f"execute {_ids(action.run)}",
    actions.Succeed: lambda action: f"succeed {_ids(action.run)}",
    actions.Fail: lambda action: f"fail {action.request.request_id}: {type(action.error).__name__}",
    actions.StartWorker: lambda action: f"start {action.worker}",
    actions.StopWorker: lambda action: f"stop {action.worker}",
    actions.KillWorker: lambda action: f"kill {action.worker}",
    actions.Load: lambda action: f"load {action.key} on {action.worker}",
    actions.Unload: lambda action: f"unload {action.key} on {action.worker}",
    actions.LoadSettled: _load_settled,
    actions.UnloadSettled: lambda action: f"unloaded {action.key}",
}
