"""What is simulated: devices, models, and who asks for what."""

from collections.abc import Mapping
from dataclasses import dataclass

from moorage.domain.model import BatchingPolicy
from moorage.scheduling.state import Limits


@dataclass(frozen=True, slots=True)
class LogUniform:
    """Sizes spread evenly over orders of magnitude."""

    least_bytes: int
    most_bytes: int


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several sizes, each as often as its weight says. A fixed size is a choice of one."""

    sizes_bytes: tuple[int, ...]
    weights: tuple[float, ...]


Sizes = LogUniform | Choice


@dataclass(frozen=True, slots=True)
class DeviceGroup:
    """`count` devices alike.

    context_bytes: what its worker process takes by itself. host_bytes: host memory for weights moved off it.
    disk_bytes_per_s: loading. host_to_device_bytes_per_s, device_to_host_bytes_per_s: restoring and offloading.
    """

    name: str
    count: int
    capacity_bytes: int
    context_bytes: int
    host_bytes: int
    disk_bytes_per_s: int
    host_to_device_bytes_per_s: int
    device_to_host_bytes_per_s: int
    run_slots: int


@dataclass(frozen=True, slots=True)
class ModelGroup:
    """`count` models alike but for their sizes.

    steps: more than 1 for a stepped model, whose every step takes run_s + rows * run_s_per_row.
    state_bytes: what one of its requests keeps between steps.
    """

    name: str
    count: int
    sizes: Sizes
    run_s: float
    run_s_per_row: float
    workspace_bytes: int
    workspace_per_row_bytes: int
    steps: int
    state_bytes: int
    priority: int
    max_batch_size: int
    instances: int
    max_queue_rows: int
    batching: BatchingPolicy


@dataclass(frozen=True, slots=True)
class Poisson:
    """Independent callers."""

    rate_per_s: float


@dataclass(frozen=True, slots=True)
class Bursts:
    """Independent callers, whose rate alternates between two values."""

    on_s: float
    off_s: float
    on_rate_per_s: float
    off_rate_per_s: float


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """So many callers, each of whom asks again after an answer, when it has thought for as long as is drawn."""

    clients: int
    least_think_s: float
    most_think_s: float


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """One line of a trace file. priority: 0 is the model's own."""

    time_s: float
    model: str
    rows: int
    priority: int


@dataclass(frozen=True, slots=True)
class Recorded:
    """What was recorded, in the order of time."""

    requests: tuple[RecordedRequest, ...]


Pattern = Poisson | Bursts | ClosedLoop | Recorded


@dataclass(frozen=True, slots=True)
class Popularity:
    """Which model is asked for: the model of rank k in proportion to 1 / k**zipf.

    After so many requests, or so many seconds, a share of the ranks is dealt out anew.
    """

    zipf: float = 0.0
    shift_every_requests: int | None = None
    shift_every_s: float | None = None
    shift_share: float = 1.0


@dataclass(frozen=True, slots=True)
class Stream:
    """One kind of traffic.

    models: names of groups; empty for all of them. priorities: how often each is asked for; 0 is the model's own.
    """

    pattern: Pattern
    models: tuple[str, ...]
    popularity: Popularity
    priorities: Mapping[int, float]
    least_rows: int
    most_rows: int
    deadline_s: float


@dataclass(frozen=True, slots=True)
class Scenario:
    """All of it. Arrivals end after so many requests, or so many seconds, whichever is first."""

    name: str
    seed: int
    requests: int | None
    duration_s: float | None
    devices: tuple[DeviceGroup, ...]
    models: tuple[ModelGroup, ...]
    streams: tuple[Stream, ...]
    limits: Limits
