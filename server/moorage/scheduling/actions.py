"""What the scheduler decides. The engine performs these, in their order."""

from dataclasses import dataclass

from moorage.domain.errors import MoorageError
from moorage.domain.model import ModelKey, ModelSpec
from moorage.domain.request import InferenceRequest, RunResult
from moorage.scheduling.budget import Lease
from moorage.scheduling.queue import Entry


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """One execution: its members in the order of their rows, and the memory it holds."""

    run_id: int
    key: ModelKey
    worker: str
    entries: tuple[Entry, ...]
    rows: int
    workspace: Lease
    started_s: float


@dataclass(frozen=True, slots=True)
class Execute:
    """Send a run to its worker."""

    run: Run


@dataclass(frozen=True, slots=True)
class Succeed:
    """Answer the members of a run that still wait. Comes before any further Execute for the same model."""

    run: Run
    result: RunResult


@dataclass(frozen=True, slots=True)
class Fail:
    """Answer one request with an error."""

    request: InferenceRequest
    error: MoorageError


@dataclass(frozen=True, slots=True)
class StartWorker:
    """Start a worker process for a device. Answered by WorkerUp or WorkerLost."""

    worker: str
    device: str


@dataclass(frozen=True, slots=True)
class StopWorker:
    """End a worker process that has nothing to do any more. Answered by WorkerLost."""

    worker: str


@dataclass(frozen=True, slots=True)
class KillWorker:
    """End a worker process that no longer obeys. Answered by WorkerLost."""

    worker: str
    reason: str


@dataclass(frozen=True, slots=True)
class Load:
    """Have a worker build a model. Answered by ModelLoaded, ModelLoadFailed or WorkerLost."""

    key: ModelKey
    spec: ModelSpec
    worker: str


@dataclass(frozen=True, slots=True)
class Unload:
    """Have a worker drop a model. Answered by ModelUnloaded or WorkerLost."""

    key: ModelKey
    worker: str


@dataclass(frozen=True, slots=True)
class LoadSettled:
    """A load that was asked for has ended: resident, or the error that says why not."""

    key: ModelKey
    error: MoorageError | None


@dataclass(frozen=True, slots=True)
class UnloadSettled:
    """A model's memory is free and the model is forgotten."""

    key: ModelKey


@dataclass(frozen=True, slots=True)
class ModelChanged:
    """A model's state, or whether it takes requests, is not what it was."""

    key: ModelKey


Action = (
    Execute
    | Succeed
    | Fail
    | StartWorker
    | StopWorker
    | KillWorker
    | Load
    | Unload
    | LoadSettled
    | UnloadSettled
    | ModelChanged
)
