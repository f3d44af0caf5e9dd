"""What the scheduler knows. Its parts share one State, and put what they decide into its `actions`."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from moorage.domain.model import ModelKey, ModelSpec, ModelState
from moorage.domain.transitions import TRANSITIONS
from moorage.scheduling.actions import Action, ModelChanged, Run
from moorage.scheduling.budget import DeviceBudget, Lease
from moorage.scheduling.claims import Claim
from moorage.scheduling.entries import Entry
from moorage.scheduling.fairness import Returning, WaitingWeight
from moorage.scheduling.line import Line
from moorage.scheduling.policy import MOORAGE, Policy, Waiting
from moorage.scheduling.queue import ModelQueue, QueueTotals
from moorage.scheduling.records import ModelRecord, WorkerRecord, WorkerState
from moorage.scheduling.timers import Timers


@dataclass(frozen=True, slots=True)
class DeviceLimits:
    """What one device offers.

    capacity_bytes: for everything; context_bytes: what each worker process takes of them by itself.
    host_bytes: beside the device, for what is moved off it. run_slots: runs or steps at once.
    """

    capacity_bytes: int
    context_bytes: int = 0
    host_bytes: int = 0
    run_slots: int = 1


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds that hold for all models.

    max_attempts: workers that may die under a request before it is given up.
    max_load_crashes: workers that may die while loading a model before the model is given up.
    max_input_bytes: inputs that share one run.
    max_waiting_rows, max_waiting_bytes: in all queues together.
    max_unload_s: a worker that has not dropped, offloaded or brought back by then what it was told to is killed.
    hang_timeout_s: likewise one that still computes a run so long after the last of its requests left.
    ageing_s: a request that waits rises one level of priority in the order each time this passes.
    min_residency_s: a model that came in is not put out for so long, unless for higher priority.
    """

    max_attempts: int = 3
    max_load_crashes: int = 3
    max_input_bytes: int = 256 * 1024 * 1024
    max_waiting_rows: int = 65536
    max_waiting_bytes: int = 1024 * 1024 * 1024
    max_unload_s: float = 30.0
    hang_timeout_s: float = 30.0
    ageing_s: float = 10.0
    min_residency_s: float = 0.2


class HoldKey(NamedTuple):
    """A hold of a process outside, as a waiter in a device's line."""

    hold_id: int

    def __str__(self) -> str:
        return f"hold-{self.hold_id}"  # without a space, as all owners: they are lists of words in errors' details


@dataclass(slots=True, eq=False)
class HoldRecord:
    """Bytes that a process outside waits for, or has."""

    key: HoldKey
    device: str
    size_bytes: int
    priority: int
    place: float
    asked_s: float
    lease: Lease | None = None


@dataclass(slots=True, eq=False)
class DeviceRecord:
    """One device.

    models: those placed on it, in any state but unloaded and failed. runs: under way on it.
    ready: models in memory that have work, and wait for a slot and for its memory. arriving: models and holds that
    wait for memory only.
    short: who waits for memory that room is being made for, and how much they need.
    gathering: models that could run, and wait for company.
    returning: models whose callers were all answered and are expected back. waiting_weights: of those who wait,
    by priority.
    guarded_until_s: when a waiter may put out somebody who came in too lately now.
    """

    name: str
    limits: DeviceLimits
    budget: DeviceBudget = field(init=False)
    host: DeviceBudget = field(init=False)
    models: dict[ModelKey, ModelRecord] = field(default_factory=dict)
    runs: int = 0
    ready: Line[Hashable] = field(default_factory=Line)
    arriving: Line[Hashable] = field(default_factory=Line)
    short: dict[Hashable, Claim] = field(default_factory=dict)
    gathering: dict[ModelKey, None] = field(default_factory=dict)
    guarded_until_s: float | None = None
    returning: dict[ModelKey, Returning] = field(default_factory=dict)
    waiting_weights: dict[int, WaitingWeight] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.budget = DeviceBudget(self.name, self.limits.capacity_bytes)
        self.host = DeviceBudget(f"{self.name} host", self.limits.host_bytes)


@dataclass(slots=True, eq=False)
class State:
    """Everything that decisions are made from.

    entries: every accepted request without an outcome, by its id; of a split one its pieces.
    split: of each split request, by its id, the pieces that are not computed yet, by theirs.
    waiting: what is in the models' queues together.
    building: placed models that have their memory and wait for their worker to build them, in the order of asking.
    closing: models to forget once they are idle.
    touched: models of which something changed, so that their places in their device's lines are to be found anew.
    awaiting: models whose next run waits for others to leave.
    stirred: devices on which something came free or somebody joined, so that those who wait are to be looked at again.
    """

    device_limits: Mapping[str, DeviceLimits]
    limits: Limits
    policy: Policy = MOORAGE
    devices: dict[str, DeviceRecord] = field(init=False)
    models: dict[ModelKey, ModelRecord] = field(default_factory=dict)
    workers: dict[str, WorkerRecord] = field(default_factory=dict)
    entries: dict[int, Entry] = field(default_factory=dict)
    split: dict[int, dict[int, Entry]] = field(default_factory=dict)
    runs: dict[int, Run] = field(default_factory=dict)
    holds: dict[HoldKey, HoldRecord] = field(default_factory=dict)
    # These are sets that keep their order: the same events must always lead to the same actions.
    building: dict[ModelKey, None] = field(default_factory=dict)
    closing: dict[ModelKey, None] = field(default_factory=dict)
    touched: dict[ModelKey, None] = field(default_factory=dict)
    awaiting: dict[ModelKey, None] = field(default_factory=dict)
    stirred: dict[str, None] = field(default_factory=dict)
    waiting: QueueTotals = field(init=False)
    timers: Timers = field(default_factory=Timers)
    actions: list[Action] = field(default_factory=list)
    draining: bool = False
    last_run_id: int = 0
    last_cohort: int = 0
    last_understudy: int = 0
    last_piece_id: int = -(2**62)  # far below all ids of requests

    def __post_init__(self) -> None:
        self.devices = {name: DeviceRecord(name, limits) for name, limits in self.device_limits.items()}
        self.waiting = QueueTotals(self.limits.max_waiting_rows, self.limits.max_waiting_bytes)

    def new_queue(self, key: ModelKey, spec: ModelSpec) -> ModelQueue:
        """Where requests for a model wait, within its bounds and those of the server."""
        return ModelQueue(key.name, spec.queue, self.waiting, by_deadline=self.policy.by_priority)

    def move(self, model: ModelRecord, state: ModelState, reason: str = "") -> None:
        """Change a model's state along TRANSITIONS, and tell."""
        assert state in TRANSITIONS[model.state], f"{model.key}: {model.state} -> {state}"
        model.state = state
        model.reason = reason
        self.actions.append(ModelChanged(model.key))
        self.touch(model)
        if self.awaiting:
            self.touched.update(self.awaiting)

    def touch(self, model: ModelRecord) -> None:
        """Something of a model changed: what it waits for may be another thing now, or nothing."""
        self.touched[model.key] = None

    def device_of(self, model: ModelRecord) -> DeviceRecord:
        """Where a placed model is."""
        assert model.device is not None
        return self.devices[model.device]

    def release(self, lease: Lease) -> None:
        """End a lease on a device: its bytes are free for those who wait."""
        self.devices[lease.device].budget.release(lease)
        self.stir(lease.device)

    def stir(self, device: str) -> None:
        self.stirred[device] = None

    def place(self, model: ModelRecord, arrived_s: float, priority: int) -> float:
        """The place in its device's lines of work of a model that came then."""
        return self.policy.place(Waiting(arrived_s, priority, model.served_s), self.limits.ageing_s)

    def waiting_place(self, model: ModelRecord, entry: Entry) -> float:
        """The place in its device's lines of a request that waits: not before its model's next turn is due.

        Places count in seconds, and who comes later has a later one by as much.
        """
        own_place, early_s = self.place_of(model, entry), model.due_s - entry.request.arrived_s
        place = model.queue.place_of(entry) if self.policy.by_priority else own_place
        early_s -= place - own_place
        return place + early_s if early_s > 0 else place

    def place_of(self, model: ModelRecord, entry: Entry) -> float:
        """The place that a request runs at."""
        if self.policy.by_priority:
            return entry.place
        return self.place(model, entry.request.arrived_s, entry.priority)

    def worker_of(self, model: ModelRecord) -> WorkerRecord | None:
        """The process that a model lives in, if it lives in one."""
        return self.workers.get(model.worker or "")

    def is_up(self, model: ModelRecord) -> bool:
        """Whether a model's process answers, and was not told to end."""
        worker = self.worker_of(model)
        return worker is not None and worker.state is WorkerState.UP

    def end_first_run(self, model: ModelRecord) -> None:
        """Give up what was leased for a model's first run. Whether anybody is to be told is for the caller to say."""
        if model.first_run is not None:
            self.device_of(model).budget.release(model.first_run)
            model.first_run = None

    def new_piece_id(self) -> int:
        """An id for a piece of a split request, which no request has."""
        self.last_piece_id += 1
        return self.last_piece_id

    def is_open(self, entry: Entry) -> bool:
        """Whether a request still waits for its outcome."""
        return self.entries.get(entry.request.request_id) is entry
