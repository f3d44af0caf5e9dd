"""One frozen picture of the server. The CLI, RepositoryIndex, health and statistics all read it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from moorage.domain.model import ModelKey, ModelSpec, ModelState, SharePolicy


@dataclass(frozen=True, slots=True)
class Duration:
    """How often something was timed, and the sum, in nanoseconds."""

    count: int = 0
    ns: int = 0


@dataclass(frozen=True, slots=True)
class BatchSizeStatistics:
    """Executions of one batch size (in rows)."""

    compute_input: Duration = Duration()
    compute_infer: Duration = Duration()
    compute_output: Duration = Duration()


@dataclass(frozen=True, slots=True)
class ModelStatistics:
    """Counts as Triton's statistics extension defines them.

    success, fail, queue and compute_* count requests; inference_count counts rows; execution_count counts runs.
    Every request of a run is charged the whole run's compute time; a split one that of all its runs, and it has queued
    until the first of them. Failures touch only `fail`.
    last_inference_ms: milliseconds since the epoch, 0 before the first.
    """

    last_inference_ms: int = 0
    inference_count: int = 0
    execution_count: int = 0
    success: Duration = Duration()
    fail: Duration = Duration()
    queue: Duration = Duration()
    compute_input: Duration = Duration()
    compute_infer: Duration = Duration()
    compute_output: Duration = Duration()
    batches: Mapping[int, BatchSizeStatistics] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ResidencyCounts:
    """How often since the server started: brought in from disk, put out, brought back from the host, and how often
    a request of the model gave way to work of higher priority, and a run of it found no memory.

    oom_*: what was done about the latter. alone: it was tried again whole, with no other run of the model beside it;
    evicted: idle models made way, and it was; halved: it was tried again in halves; other_device, fallback: one request
    was computed there; refused: one was.
    """

    loads: int = 0
    evictions: int = 0
    restores: int = 0
    preemptions: int = 0
    out_of_memory: int = 0
    oom_alone: int = 0
    oom_evicted: int = 0
    oom_halved: int = 0
    oom_other_device: int = 0
    oom_fallback: int = 0
    oom_refused: int = 0


@dataclass(frozen=True, slots=True)
class UnderstudySnapshot:
    """A model on another device, for requests that found no memory on its own. device: where it computes.

    version: as holders of memory are named, "1~2". All else: see ModelSnapshot.
    """

    version: str
    state: ModelState
    reason: str
    device: str
    leased_bytes: Mapping[str, int]
    host_bytes: int = 0
    waiting_rows: int = 0
    running: int = 0


@dataclass(frozen=True, slots=True)
class ModelSnapshot:
    """One version of one model.

    ready: whether a request for it would be accepted now; a model loaded on demand is ready while it is cold.
    reason: why it is not resident, or empty.
    leased_bytes: bytes held on the device, by kind ("weights", "workspace", "state"). host_bytes: beside the device.
    running: requests in a run, or between steps of one.
    """

    key: ModelKey
    spec: ModelSpec
    state: ModelState
    ready: bool
    reason: str
    device: str | None
    leased_bytes: Mapping[str, int]
    waiting_rows: int
    statistics: ModelStatistics
    share: SharePolicy = field(default_factory=SharePolicy)
    host_bytes: int = 0
    running: int = 0
    residency: ResidencyCounts = ResidencyCounts()
    understudies: tuple[UnderstudySnapshot, ...] = ()


@dataclass(frozen=True, slots=True)
class BrokenModel:
    """A folder of the repository that is no usable model, and why."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class DeviceSnapshot:
    """One device's ledger. leased_bytes is by kind ("context", "weights", "workspace", "state", "held").

    capacity_bytes: what it offers now. configured_bytes: what it offers when no other process uses it.
    host_capacity_bytes, host_leased_bytes: host memory for what was moved off the device.
    waiting: models and holds that wait for memory of it, or for a run slot.
    """

    name: str
    capacity_bytes: int
    leased_bytes: Mapping[str, int]
    configured_bytes: int = 0
    host_capacity_bytes: int = 0
    host_leased_bytes: int = 0
    run_slots: int = 1
    running: int = 0
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class ServerSnapshot:
    """Everything that views show. `models` is sorted by name, then version."""

    models: tuple[ModelSnapshot, ...]
    broken: tuple[BrokenModel, ...]
    devices: tuple[DeviceSnapshot, ...]
    ready: bool
    draining: bool
