"""What the scheduler decides. The engine performs these, in their order."""

from dataclasses import dataclass

from moorage.domain.errors import MoorageError
from moorage.domain.model import ModelKey, ModelSpec
from moorage.domain.request import InferenceRequest, RunResult, StepResult
from moorage.scheduling.budget import Lease
from moorage.scheduling.entries import Entry


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """One execution, or one step of a stepped model: its members in the order of their rows, and what it holds.

    step: what a stepped model's worker has to do first; None for any other model.
    instance: which of the model's instances computes it, counted from 0; no other run of it is under way there.
    """

    run_id: int
    key: ModelKey
    worker: str
    entries: tuple[Entry, ...]
    rows: int
    workspace: Lease
    started_s: float
    step: "StepPlan | None" = None
    instance: int = 0


@dataclass(frozen=True, slots=True)
class StepPlan:
    """Members of a step that have no state on the device yet.

    starting: begin from their inputs. resuming: their states are brought back from the host.
    """

    starting: tuple[Entry, ...]
    resuming: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Execute:
    """Send a run to its worker."""

    run: Run


@dataclass(frozen=True, slots=True)
class Succeed:
    """Answer the members of a run that still wait. Comes before any further Execute for the same instance."""

    run: Run
    result: RunResult


@dataclass(frozen=True, slots=True)
class SucceedStepped:
    """Answer one request of a stepped model. Comes before any further Execute for the same model."""

    run: Run
    request: InferenceRequest
    result: StepResult


@dataclass(frozen=True, slots=True)
class Emit:
    """Hand the caller what a step answered of a request that goes on. Likewise before any further Execute."""

    run: Run
    request: InferenceRequest
    result: StepResult


@dataclass(frozen=True, slots=True)
class Suspend:
    """Have a worker move the states of requests to host memory, between steps. Answered by StatesSuspended."""

    key: ModelKey
    worker: str
    request_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Drop:
    """Have a worker give up the states of requests, between steps. Answered by StatesDropped."""

    key: ModelKey
    worker: str
    request_ids: tuple[int, ...]


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
class Offload:
    """Have a worker move a model's weights to the host. Answered by ModelOffloaded or ModelOffloadFailed."""

    key: ModelKey
    worker: str


@dataclass(frozen=True, slots=True)
class Restore:
    """Have a worker bring a model's weights back. Answered by ModelRestored or ModelRestoreFailed."""

    key: ModelKey
    worker: str


@dataclass(frozen=True, slots=True)
class HoldSettled:
    """A hold has its bytes, or the error that says why it never will."""

    hold_id: int
    error: MoorageError | None


@dataclass(frozen=True, slots=True)
class LoadSettled:
    """A load that was asked for has ended: resident or in service, or the error that says why not."""

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
    | SucceedStepped
    | Emit
    | Suspend
    | Drop
    | Fail
    | StartWorker
    | StopWorker
    | KillWorker
    | Load
    | Unload
    | Offload
    | Restore
    | HoldSettled
    | LoadSettled
    | UnloadSettled
    | ModelChanged
)
