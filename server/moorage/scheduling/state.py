"""What the scheduler knows. Its parts share one State, and put what they decide into its `actions`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from moorage.domain.errors import MoorageError
from moorage.domain.model import TRANSITIONS, ModelKey, ModelSpec, ModelState
from moorage.scheduling.actions import Action, ModelChanged, Run
from moorage.scheduling.budget import DeviceBudget, Lease
from moorage.scheduling.queue import Entry, ModelQueue
from moorage.scheduling.timers import Timers


@dataclass(frozen=True, slots=True)
class DeviceLimits:
    """What one device offers: bytes for everything, and what each worker process takes of them by itself."""

    capacity_bytes: int
    context_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds that hold for all models.

    max_attempts: workers that may die under a request before it is given up.
    max_load_crashes: workers that may die while loading a model before the model is given up.
    max_input_bytes: inputs that share one run.
    max_unload_s: a worker that has not dropped a model by then is killed.
    hang_timeout_s: likewise one that still computes a run so long after the last deadline in it.
    """

    max_attempts: int = 3
    max_load_crashes: int = 3
    max_input_bytes: int = 256 * 1024 * 1024
    max_unload_s: float = 30.0
    hang_timeout_s: float = 30.0


class WorkerState(StrEnum):
    """starting -> up -> stopping; all of them -> down when the process ends, and down -> starting.

    stopping: told to end, or being killed. It is sent nothing more.
    """

    STARTING = "starting"
    UP = "up"
    STOPPING = "stopping"
    DOWN = "down"


@dataclass(slots=True, eq=False)
class WorkerRecord:
    """One worker process, also while it is down.

    context: its own memory. Kept through a back-off, so that no newcomer takes the place of what comes back.
    loading: what it builds now; one at a time. crashes: ends in a row that nobody asked for.
    """

    worker: str
    device: str
    dedicated: bool
    state: WorkerState = WorkerState.DOWN
    context: Lease | None = None
    loading: ModelKey | None = None
    crashes: int = 0
    up_since_s: float = 0.0
    restart_at_s: float | None = None

    @property
    def startable(self) -> bool:
        """Down, and no back-off holds it."""
        return self.state is WorkerState.DOWN and self.restart_at_s is None


@dataclass(slots=True, eq=False)
class ModelRecord:
    """One registered model.

    weights: kept while its worker is brought back, so that no newcomer takes its place.
    wanted: a load was asked for and is not settled. closing: takes no new work, and goes when it is idle.
    load_crashes: workers that died while they built it.
    failure: why it must not stay, decided while a worker still holds its memory.
    """

    key: ModelKey
    spec: ModelSpec
    queue: ModelQueue
    state: ModelState = ModelState.UNLOADED
    reason: str = ""
    device: str | None = None
    worker: str | None = None
    weights: Lease | None = None
    run: Run | None = None
    wanted: bool = False
    closing: bool = False
    load_crashes: int = 0
    load_deadline_s: float = 0.0
    unload_deadline_s: float = 0.0
    failure: MoorageError | None = None


@dataclass(slots=True, eq=False)
class State:
    """Everything that decisions are made from.

    entries: every accepted request without an outcome, by its id.
    pending_loads: models in LOADING whose worker has not been told to build them yet, in the order of asking.
    short_of_memory: by device, resident models whose next run found no memory, in the order of asking.
    closing: models to forget once they are idle.
    stirred: devices on which something came free, so that those who wait are to be looked at again.
    """

    devices: Mapping[str, DeviceLimits]
    limits: Limits
    budgets: dict[str, DeviceBudget] = field(init=False)
    context_bytes: dict[str, int] = field(init=False)
    models: dict[ModelKey, ModelRecord] = field(default_factory=dict)
    workers: dict[str, WorkerRecord] = field(default_factory=dict)
    entries: dict[int, Entry] = field(default_factory=dict)
    runs: dict[int, Run] = field(default_factory=dict)
    # These are sets that keep their order: the same events must always lead to the same actions.
    pending_loads: dict[ModelKey, None] = field(default_factory=dict)
    short_of_memory: dict[str, dict[ModelKey, None]] = field(init=False)
    closing: dict[ModelKey, None] = field(default_factory=dict)
    stirred: dict[str, None] = field(default_factory=dict)
    timers: Timers = field(default_factory=Timers)
    actions: list[Action] = field(default_factory=list)
    draining: bool = False
    last_run_id: int = 0

    def __post_init__(self) -> None:
        self.budgets = {name: DeviceBudget(name, limits.capacity_bytes) for name, limits in self.devices.items()}
        self.context_bytes = {name: limits.context_bytes for name, limits in self.devices.items()}
        self.short_of_memory = {name: {} for name in self.devices}

    def move(self, model: ModelRecord, state: ModelState, reason: str = "") -> None:
        """Change a model's state along TRANSITIONS, and tell."""
        assert state in TRANSITIONS[model.state], f"{model.key}: {model.state} -> {state}"
        model.state = state
        model.reason = reason
        if state is not ModelState.RESIDENT:
            self.leave_line(model)
        self.actions.append(ModelChanged(model.key))

    def leave_line(self, model: ModelRecord) -> None:
        """A model no longer waits for memory to run in; those behind it may go on."""
        if model.device is not None and model.key in self.short_of_memory[model.device]:
            del self.short_of_memory[model.device][model.key]
            self.stir(model.device)

    def release(self, lease: Lease) -> None:
        """End a lease: its bytes are free for those who wait."""
        self.budgets[lease.device].release(lease)
        if lease.size_bytes:
            self.stir(lease.device)

    def stir(self, device: str) -> None:
        self.stirred[device] = None

    def models_on(self, worker: str) -> list[ModelRecord]:
        return [model for model in self.models.values() if model.worker == worker]
