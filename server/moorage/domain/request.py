"""A request after decoding: validated, and ready to be queued."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from moorage.domain.errors import MoorageError
from moorage.domain.model import ModelKey
from moorage.domain.tensor import Datatype, InputTensor

ParameterValue = bool | int | float | str


@dataclass(frozen=True, slots=True, eq=False)
class InferenceRequest:
    """One caller's work for one model.

    request_id: unique in this server's life; client_id is what the caller sent, echoed back.
    rows: rows along the batch axis; 1 for a model without one.
    outputs: names asked for; empty means all.
    batch_key: requests may share a run only if theirs are equal; None shares with nobody.
    size_bytes: bytes of all inputs and what keeping them takes, counted against the queue's bound.
    arrived_s, deadline_s: monotonic seconds.
    priority: 1 highest to 5; 0 is the model's default.
    padded: of each input that is filled up to the size of the largest in its run, the bytes of an element and the
    dimensions of a row.
    piece: where it belongs, if it is some rows of another request, made by the scheduler (domain/pieces.py).
    """

    request_id: int
    client_id: str
    model: ModelKey
    inputs: tuple[InputTensor, ...]
    rows: int
    size_bytes: int
    arrived_s: float
    deadline_s: float
    batch_key: Hashable | None = None
    outputs: tuple[str, ...] = ()
    parameters: Mapping[str, ParameterValue] = field(default_factory=dict)
    priority: int = 0
    padded: tuple[tuple[int, ...], ...] = ()
    piece: "Piece | None" = None

    @property
    def row_bytes(self) -> int:
        """Bytes of input of one of its rows, on average."""
        return sum(len(tensor.data) for tensor in self.inputs) // self.rows


class Piece(NamedTuple):
    """Of which request, and with which of its rows it begins."""

    whole: InferenceRequest
    first_row: int


@dataclass(frozen=True, slots=True)
class BatchOutput:
    """One output of a whole run.

    splits: the end, in bytes from the start of data, of each member's part.
    data: a view into shared memory that is valid only until the run's worker is sent more work.
    """

    name: str
    datatype: Datatype
    shape: tuple[int, ...]
    data: memoryview
    splits: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RunResult:
    """What a run brought back, and how long the worker spent on each part, in nanoseconds.

    peak_bytes: of the device, what it took at most beside the weights; reserved_bytes: what the allocator took for
    that. None where it was not measured.
    """

    outputs: tuple[BatchOutput, ...]
    input_ns: int
    infer_ns: int
    output_ns: int
    peak_bytes: int | None = None
    reserved_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class RehearsedRun:
    """A run of a warm-up.

    rows: at least 1. row_bytes: of input, of each of them. peak_bytes: of the device, the most that it took beside the
    weights; None where that was not measured. seconds: that the worker spent on it; None where they tell nothing of
    requests' runs.
    """

    rows: int
    row_bytes: int
    peak_bytes: int | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class StepResult:
    """What one step did for one request of a stepped model.

    outputs: of a request that is done; one output each, its data as in BatchOutput, with a single split.
    state_bytes: what the request keeps on the device until its next step; 0 once it is done.
    error: why the step came to nothing for this request alone; its state is gone.
    """

    request_id: int
    done: bool
    state_bytes: int
    outputs: tuple[BatchOutput, ...] = ()
    error: MoorageError | None = None
