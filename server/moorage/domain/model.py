"""Models: what is declared of them, and the states they pass through."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import PurePath
from typing import Any, NamedTuple

from moorage.domain.tensor import Datatype, TensorSpec, element_count


class ModelKey(NamedTuple):
    """One loaded thing. The generation tells a reloaded version from the one it replaces.

    It is negative of an understudy, which the scheduler made of a model for another device.
    """

    name: str
    version: int
    generation: int = 0

    def __str__(self) -> str:
        if self.generation < 0:
            return f"{self.name}/{self.version}~{-self.generation}"
        return f"{self.name}/{self.version}" + (f"+{self.generation}" if self.generation else "")

    @property
    def is_understudy(self) -> bool:
        return self.generation < 0


class Loading(StrEnum):
    """When a model is loaded."""

    EAGER = "eager"
    ON_DEMAND = "on_demand"
    EXPLICIT = "explicit"


class Preemption(StrEnum):
    """How work of a model gives way to work of higher priority: between steps, by the end of its process, or never.

    A model that is not stepped has no steps to give way between.
    """

    STEP = "step"
    KILL = "kill"
    NEVER = "never"


class Isolation(StrEnum):
    """Whose process a model runs in: the device's, or its own."""

    SHARED = "shared"
    DEDICATED = "dedicated"


@dataclass(frozen=True, slots=True)
class MemoryPolicy:
    """Declared bytes. None where they are to be measured.

    state_bytes: what one request of a stepped model keeps between steps.
    """

    weights_bytes: int | None = None
    workspace_fixed_bytes: int = 0
    workspace_per_row_bytes: int = 0
    state_bytes: int | None = None

    def workspace_bytes(self, rows: int) -> int:
        """Bytes of one run of that many rows, besides the weights."""
        return self.workspace_fixed_bytes + rows * self.workspace_per_row_bytes


@dataclass(frozen=True, slots=True)
class QueuePolicy:
    """Bounds of what may wait for a model."""

    max_rows: int = 256
    max_bytes: int = 64 * 1024 * 1024
    default_timeout_s: float = 30.0


@dataclass(frozen=True, slots=True)
class RatePolicy:
    """How much a model may be asked for; None for no limit.

    burst_s: as much as may come in that many seconds may come at once.
    """

    requests_per_s: float | None = None
    rows_per_s: float | None = None
    burst_s: float = 1.0


@dataclass(frozen=True, slots=True)
class BatchingPolicy:
    """When a run begins on an idle device.

    max_queue_delay_s: the most that its oldest request waits for others; None for as long as that pays, by what was
    learned. low_watermark: rows that are waited for, up to max_queue_delay_s; 0 for none. preferred_sizes: rows of a
    run, ascending; it takes the largest of these that it can fill. split_requests: a request with more rows than a run
    may have is computed in several runs. per_request_parameters: names of those that may differ within a run; "*" for
    all.
    """

    max_queue_delay_s: float | None = None
    low_watermark: int = 0
    preferred_sizes: tuple[int, ...] = ()
    split_requests: bool = False
    per_request_parameters: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class SharePolicy:
    """A model's standing among the others. An operator may change it while the server runs.

    priority: 1 highest to 5; of requests that name none.
    reserved_bytes: of its device, kept for this model alone from its first load until it is unloaded.
    limit_bytes: the most that its executions (workspace and state) may hold; None for no limit of its own.
    pinned: its weights are never evicted.
    """

    priority: int = 3
    reserved_bytes: int = 0
    limit_bytes: int | None = None
    pinned: bool = False


@dataclass(frozen=True, slots=True)
class PreemptionPolicy:
    """max_preemptions: a request that gave way so often is left alone from then on."""

    by: Preemption = Preemption.STEP
    max_preemptions: int = 3


@dataclass(frozen=True, slots=True)
class SimulatedCosts:
    """The table of a simulated model: seconds to load, to bring back, and to run a batch.

    steps: more than 1 makes it a stepped model, whose every step takes as long as a run of another.
    """

    load_s: float = 0.0
    restore_s: float = 0.0
    run_s: float = 0.0
    run_s_per_row: float = 0.0
    steps: int = 1
    state_bytes: int = 0


class Fill(StrEnum):
    """What an input of a warm-up holds where no values are given: of BYTES, zeros are empty elements.

    random: the same at every load; floats from 0 to 1, whole numbers from 0 to 9.
    """

    ZEROS = "zeros"
    RANDOM = "random"


@dataclass(frozen=True, slots=True)
class WarmupInput:
    """One input of a warm-up run. shape: without the batch axis, all sizes known.

    values: its elements in row-major order, repeated until all rows are full; empty where it is filled.
    """

    name: str
    datatype: Datatype
    shape: tuple[int, ...]
    fill: Fill = Fill.ZEROS
    values: tuple[bool | int | float | str, ...] = ()

    def size_bytes(self, rows: int) -> int:
        """Of so many rows, as they travel: each element of BYTES has its length in front."""
        count = rows * element_count(self.shape)
        size_bytes = count * self.datatype.item_bytes
        if self.datatype is not Datatype.BYTES or not self.values:
            return size_bytes
        lengths = [len(str(value).encode()) for value in self.values]
        whole, part = divmod(count, len(lengths))
        return size_bytes + whole * sum(lengths) + sum(lengths[:part])


@dataclass(frozen=True, slots=True)
class WarmupRun:
    """A run that a worker does so many times before it says that a model is loaded.

    rows: along the batch axis; 1 for a model without one.
    """

    rows: int = 1
    count: int = 1
    inputs: tuple[WarmupInput, ...] = ()


@dataclass(frozen=True, slots=True)
class Footprint:
    """What was measured of a version of a model, in this life of the server or an earlier one. None: not yet.

    weights_bytes: on the device, between runs. load_s: from disk. restore_s: from host memory.
    state_bytes: the most that one request kept after its first step. uses_per_s: how often it was asked for.
    """

    weights_bytes: int | None = None
    load_s: float | None = None
    restore_s: float | None = None
    state_bytes: int | None = None
    uses_per_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ProfiledRun:
    """A run that `moorage profile` measured.

    rows: at least 1. row_bytes: of its inputs, the largest row. peak_bytes: of the device, beside the weights.
    reserved_bytes: what the allocator took for it; None where there is none. seconds: from its beginning to its end.
    """

    rows: int
    row_bytes: int
    peak_bytes: int
    reserved_bytes: int | None
    seconds: float


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """All that is declared of one version of a model.

    max_batch_size: rows in one run; 0 where the model has no batch axis.
    path: the version's folder; only workers open it.
    fingerprint: changes when the files or the manifest change.
    weights_hint_bytes: size of the weight files on disk; 0 where there are none.
    weight: its share of its device's seconds, beside the weights of other models of the same priority.
    fallback: the device that computes what finds no memory on those; empty for none.
    instances: runs of it that may be under way at once; 1 of a stepped model.
    decoupled: it answers a request with as many responses as it likes, or none; it computes in steps.
    versions: which of the model's versions are offered: "latest", "all", or their numbers.
    profiles: runs that were measured before, by kind of device ("cpu", "cuda").
    warmup: runs that come before it is loaded, in their order.
    """

    name: str
    version: int
    runtime: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    path: PurePath
    max_batch_size: int = 0
    instances: int = 1
    decoupled: bool = False
    loading: Loading = Loading.EAGER
    load_timeout_s: float = 300.0
    isolation: Isolation = Isolation.SHARED
    devices: tuple[str, ...] = ("*",)
    fallback: str = ""
    memory: MemoryPolicy = MemoryPolicy()
    queue: QueuePolicy = QueuePolicy()
    rate: RatePolicy = RatePolicy()
    batching: BatchingPolicy = BatchingPolicy()
    share: SharePolicy = SharePolicy()
    preemption: PreemptionPolicy = PreemptionPolicy()
    weight: float = 1.0
    simulated: SimulatedCosts = SimulatedCosts()
    parameters: Mapping[str, Any] = field(default_factory=dict)
    fingerprint: str = ""
    weights_hint_bytes: int = 0
    versions: str | tuple[int, ...] = "latest"
    warmup: tuple[WarmupRun, ...] = ()
    profiles: Mapping[str, tuple[ProfiledRun, ...]] = field(default_factory=dict)

    @property
    def max_request_rows(self) -> int:
        """The most rows that one request may bring; 0 where the model has no batch axis."""
        if not self.batching.split_requests:
            return self.max_batch_size
        return max(self.max_batch_size, self.queue.max_rows)


class ModelState(StrEnum):
    """Where the weights of one ModelKey are.

    offloaded: in host memory (of a CPU device: in a file), ready to be brought back.
    """

    UNLOADED = "unloaded"
    LOADING = "loading"
    RESIDENT = "resident"
    OFFLOADING = "offloading"
    OFFLOADED = "offloaded"
    RESTORING = "restoring"
    UNLOADING = "unloading"
    FAILED = "failed"
