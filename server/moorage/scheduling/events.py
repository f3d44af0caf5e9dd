"""What can happen. The engine turns everything outside into one of these."""

from dataclasses import dataclass, field

from moorage.domain.errors import MoorageError
from moorage.domain.model import Footprint, ModelKey, ModelSpec, SharePolicy
from moorage.domain.request import InferenceRequest, RehearsedRun, RunResult, StepResult


@dataclass(frozen=True, slots=True)
class RequestsArrived:
    """Decoded requests ask to be served. Their ids have never been used before.

    All of them are queued before any run is started, so that they can share it.
    """

    requests: tuple[InferenceRequest, ...]


@dataclass(frozen=True, slots=True)
class RequestCancelled:
    """The caller has gone. Harmless for a request that is already answered."""

    request_id: int


@dataclass(frozen=True, slots=True)
class RequestPaused:
    """The caller does not take what a stepped request has answered so far: no further step of it for now.

    Harmless for a request that is already answered, or paused.
    """

    request_id: int


@dataclass(frozen=True, slots=True)
class RequestResumed:
    """The caller has taken it. Harmless for a request that is already answered, or not paused."""

    request_id: int


@dataclass(frozen=True, slots=True)
class RunFinished:
    """A worker computed a run."""

    run_id: int
    result: RunResult


@dataclass(frozen=True, slots=True)
class RunFailed:
    """A worker gave a run up, and is fit for the next."""

    run_id: int
    error: MoorageError


@dataclass(frozen=True, slots=True)
class StepFinished:
    """A worker computed one step of a stepped model's run; a result for every request that took part.

    peak_bytes: see RunResult; here beside the states, too.
    """

    run_id: int
    results: tuple[StepResult, ...]
    peak_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class StatesSuspended:
    """A worker moved the states of requests to host memory: their bytes on the device are free."""

    key: ModelKey
    request_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StatesDropped:
    """A worker gave up the states of requests, wherever they were."""

    key: ModelKey
    request_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ModelRegistered:
    """A model exists and may be loaded. footprint: what is remembered of it."""

    key: ModelKey
    spec: ModelSpec
    footprint: Footprint = field(default_factory=Footprint)


@dataclass(frozen=True, slots=True)
class LoadRequested:
    """Bring a registered model into memory and keep it in service. Answered by one LoadSettled.

    may_evict: whether idle models may be put out for it. Otherwise it settles without an error where memory is
    short, and the model's first request brings it in.
    """

    key: ModelKey
    may_evict: bool = True


@dataclass(frozen=True, slots=True)
class UnloadRequested:
    """Refuse new work, finish what was accepted, release the memory, forget the model. Answered by UnloadSettled."""

    key: ModelKey


@dataclass(frozen=True, slots=True)
class ModelLoaded:
    """A worker has a model ready. weights_bytes: what it measured.

    stepped: it computes in steps. can_offload: its weights can be moved to the host and back.
    rehearsed: runs of its warm-up.
    """

    key: ModelKey
    weights_bytes: int
    load_s: float = 0.0
    stepped: bool = False
    can_offload: bool = False
    rehearsed: tuple[RehearsedRun, ...] = ()


@dataclass(frozen=True, slots=True)
class ModelLoadFailed:
    """A worker could not build a model, and has freed what it had taken."""

    key: ModelKey
    error: MoorageError


@dataclass(frozen=True, slots=True)
class ModelUnloaded:
    """A worker has dropped a model. retained_bytes: of its weights, what something still holds."""

    key: ModelKey
    retained_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ModelOffloaded:
    """A worker has moved a model's weights to the host. retained_bytes: what stayed on the device all the same."""

    key: ModelKey
    retained_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ModelOffloadFailed:
    """A worker could not move a model's weights to the host; it is still there, and fit for runs."""

    key: ModelKey


@dataclass(frozen=True, slots=True)
class ModelRestored:
    """A worker has a model's weights back on the device."""

    key: ModelKey
    restore_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ModelRestoreFailed:
    """A worker could not bring a model's weights back. What it holds of the model is good for nothing."""

    key: ModelKey
    error: MoorageError


@dataclass(frozen=True, slots=True)
class WorkerUp:
    """A worker process answers."""

    worker: str


@dataclass(frozen=True, slots=True)
class WorkerLost:
    """A worker process is gone, and all that it held with it; whether it was told to go or not."""

    worker: str
    reason: str


@dataclass(frozen=True, slots=True)
class TimeReached:
    """The moment that the scheduler asked to be woken at, or later."""


@dataclass(frozen=True, slots=True)
class DrainStarted:
    """The server is shutting down: take no new requests."""


@dataclass(frozen=True, slots=True)
class CapacityChanged:
    """What a device offers has changed, as other processes took memory of it or gave it back."""

    device: str
    capacity_bytes: int


@dataclass(frozen=True, slots=True)
class ShareChanged:
    """An operator changed a model's standing."""

    key: ModelKey
    share: SharePolicy


@dataclass(frozen=True, slots=True)
class HoldRequested:
    """A process outside wants bytes of a device's budget. Answered by HoldSettled. The id was never used before."""

    hold_id: int
    device: str
    size_bytes: int
    priority: int
    deadline_s: float


@dataclass(frozen=True, slots=True)
class HoldReleased:
    """It no longer wants or has them."""

    hold_id: int


Event = (
    RequestsArrived
    | RequestCancelled
    | RequestPaused
    | RequestResumed
    | RunFinished
    | RunFailed
    | StepFinished
    | StatesSuspended
    | StatesDropped
    | ModelRegistered
    | LoadRequested
    | UnloadRequested
    | ModelLoaded
    | ModelLoadFailed
    | ModelUnloaded
    | ModelOffloaded
    | ModelOffloadFailed
    | ModelRestored
    | ModelRestoreFailed
    | CapacityChanged
    | ShareChanged
    | HoldRequested
    | HoldReleased
    | WorkerUp
    | WorkerLost
    | TimeReached
    | DrainStarted
)
