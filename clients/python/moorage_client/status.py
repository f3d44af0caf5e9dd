"""What the admin service tells, as callers of the clients see it."""

from collections.abc import Mapping
from dataclasses import dataclass

from moorage_client.holders import Holder


@dataclass(frozen=True, slots=True)
class ModelPolicy:
    """A model's standing among the others.

    priority: 1 highest to 5, of requests that name none. reserved_bytes: of its device, kept for this model alone.
    limit_bytes: the most that its executions may hold; None for no limit. pinned: its weights are never evicted.
    """

    priority: int
    reserved_bytes: int
    limit_bytes: int | None
    pinned: bool


@dataclass(frozen=True, slots=True)
class ResidencyCounts:
    """How often since the server started: brought in from disk, put out, brought back from host memory, and how
    often a request of the model gave way to work of higher priority, and a run of it found no memory.

    oom_*: what was done about the latter. alone: it was tried again whole, with no other run of the model beside it;
    evicted: idle models made way, and it was; halved: it was tried again in halves; other_device, fallback: one request
    was computed there; refused: one was.
    """

    loads: int
    evictions: int
    restores: int
    preemptions: int
    out_of_memory: int = 0
    oom_alone: int = 0
    oom_evicted: int = 0
    oom_halved: int = 0
    oom_other_device: int = 0
    oom_fallback: int = 0
    oom_refused: int = 0


@dataclass(frozen=True, slots=True)
class Understudy:
    """A model once more, on another device, for requests that found no memory on its own.

    version: as holders of memory are named, "1~2". device: where it computes, whether it holds memory there or not.
    All else: see ModelStatus.
    """

    version: str
    state: str
    reason: str
    device: str
    leased_bytes: Mapping[str, int]
    host_bytes: int
    waiting_rows: int
    running_requests: int


@dataclass(frozen=True, slots=True)
class ModelStatus:
    """One version of one model.

    state: "unloaded", "loading", "resident", "offloading", "offloaded", "restoring", "unloading" or "failed".
    ready: whether a request for it would be accepted now. reason: why it is not resident, or empty.
    device: where it holds memory, such as "cpu" or "cuda:0"; empty where it holds none.
    leased_bytes: held there, by kind ("weights", "workspace", "state"). host_bytes: held beside it.
    """

    name: str
    version: str
    state: str
    ready: bool
    reason: str
    device: str
    leased_bytes: Mapping[str, int]
    host_bytes: int
    policy: ModelPolicy
    waiting_rows: int
    running_requests: int
    residency_counts: ResidencyCounts
    understudies: tuple[Understudy, ...] = ()


@dataclass(frozen=True, slots=True)
class BrokenModel:
    """A folder of the repository that is no usable model, and why."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class DeviceStatus:
    """The ledger of one device. leased_bytes: by kind ("context", "weights", "workspace", "state", "held").

    capacity_bytes: what it offers now. configured_bytes: what it offers when no other process uses it.
    host_capacity_bytes, host_leased_bytes: host memory for what was moved off it.
    waiting: models and holds that wait for memory of it, or for a run slot.
    """

    name: str
    capacity_bytes: int
    configured_bytes: int
    leased_bytes: Mapping[str, int]
    host_capacity_bytes: int
    host_leased_bytes: int
    run_slots: int
    running_runs: int
    waiting: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One picture of a server, all of it of the same moment."""

    ready: bool
    draining: bool
    models: tuple[ModelStatus, ...]
    broken_models: tuple[BrokenModel, ...]
    devices: tuple[DeviceStatus, ...]


@dataclass(frozen=True, slots=True)
class RunEstimate:
    """Of runs of so many rows, none of which has more than row_bytes of input. See RunEstimate of moorage.v1."""

    rows: int
    row_bytes: int
    leased_bytes: int
    expected_bytes: int | None
    measured_bytes: int | None
    bytes_error: float | None
    measured_runs: int
    expected_s: float | None
    seconds_error: float | None


@dataclass(frozen=True, slots=True)
class Explanation:
    """What would happen if a model were asked for so many rows now, on the device where it is or would go.

    verdict: "now", "evict", "preempt", "wait", "refused" (for now) or "never". needed_bytes: weights that are not there
    yet, and the memory of that run. missing_bytes: of these, what can't be had now even by evicting and preempting.
    evict, preempt: who would go, in that order. holders: everybody on the device, largest first.
    """

    model: str
    version: str
    verdict: str
    device: str
    rows: int
    priority: int
    needed_bytes: int
    free_bytes: int
    missing_bytes: int
    evict: tuple[Holder, ...]
    preempt: tuple[Holder, ...]
    holders: tuple[Holder, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class PolicyChange:
    """What to change of a model's standing; None for what stays. no_limit: from now on, in place of limit_bytes."""

    priority: int | None = None
    reserved_bytes: int | None = None
    limit_bytes: int | None = None
    no_limit: bool = False
    pinned: bool | None = None
