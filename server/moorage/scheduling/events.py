"""What can happen. The engine turns everything outside into one of these."""

from dataclasses import dataclass

from moorage.domain.errors import MoorageError
from moorage.domain.model import ModelKey, ModelSpec
from moorage.domain.request import InferenceRequest, RunResult


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
class ModelRegistered:
    """A model exists and may be loaded."""

    key: ModelKey
    spec: ModelSpec


@dataclass(frozen=True, slots=True)
class LoadRequested:
    """Bring a registered model into memory and keep it there. Answered by one LoadSettled."""

    key: ModelKey


@dataclass(frozen=True, slots=True)
class UnloadRequested:
    """Refuse new work, finish what was accepted, release the memory, forget the model. Answered by UnloadSettled."""

    key: ModelKey


@dataclass(frozen=True, slots=True)
class ModelLoaded:
    """A worker has a model ready. weights_bytes: what it measured."""

    key: ModelKey
    weights_bytes: int


@dataclass(frozen=True, slots=True)
class ModelLoadFailed:
    """A worker could not build a model, and has freed what it had taken."""

    key: ModelKey
    error: MoorageError


@dataclass(frozen=True, slots=True)
class ModelUnloaded:
    """A worker has freed a model's memory."""

    key: ModelKey


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


Event = (
    RequestsArrived
    | RequestCancelled
    | RunFinished
    | RunFailed
    | ModelRegistered
    | LoadRequested
    | UnloadRequested
    | ModelLoaded
    | ModelLoadFailed
    | ModelUnloaded
    | WorkerUp
    | WorkerLost
    | TimeReached
    | DrainStarted
)
