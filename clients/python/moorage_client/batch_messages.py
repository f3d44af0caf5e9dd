"""Batches as callers of the clients see them, and the protocol's messages."""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from moorage_client.errors import MoorageClientError, from_status_message
from moorage_client.messages import InferenceOptions, ParameterValue, infer_outputs, infer_request, whole
from moorage_client.tensors import Array, Tensor
from moorage_protocol import inference as inference_pb
from moorage_protocol import moorage_v1 as pb

_MAX_MS = 2**63 - 1


class BatchState(enum.Enum):
    """RUNNING: items may come, or some have no result yet. DONE: every item has a result or an error."""

    RUNNING = "RUNNING"
    DONE = "DONE"
    CANCELLED = "CANCELLED"
    EXPIRED = "EXPIRED"


@dataclass(frozen=True, slots=True)
class BatchItem:
    """One item. item_id: unique in the batch; empty: its number, from 0. outputs: wanted; none for all."""

    inputs: Mapping[str, Tensor]
    item_id: str = ""
    outputs: Sequence[str] = ()
    parameters: Mapping[str, ParameterValue] | None = None


@dataclass(frozen=True, slots=True)
class BatchOptions:
    """What a batch is, besides its id and model. Submitting it again with the same goes on with it.

    priority: 1 highest to 5. timeout_s: of all of it, from when it was opened; None for a day. ordered: results in the
    order of the items, not as they are there. durable: kept on the server's disk. attempts: tries of an item, the
    first included; None for 3. retry_codes: names of the statuses after which an item is tried again; none for
    UNAVAILABLE, ABORTED and RESOURCE_EXHAUSTED. first_backoff_s, max_backoff_s: between tries; None for 0.5 and 30.
    result_ttl_s: how long results are kept; None for a day.
    """

    version: str = ""
    priority: int = 5
    timeout_s: float | None = None
    ordered: bool = False
    durable: bool = False
    attempts: int | None = None
    first_backoff_s: float | None = None
    max_backoff_s: float | None = None
    retry_codes: Sequence[str] = ()
    result_ttl_s: float | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BatchResult:
    """What became of an item. sequence: its number among all that the batch has told, from 1.

    responses: the outputs by name; of a decoupled model for each of its answers. error: why there are none.
    """

    item_id: str
    sequence: int
    responses: tuple[dict[str, Array], ...] = ()
    error: MoorageClientError | None = None

    @property
    def outputs(self) -> dict[str, Array]:
        """Of a model that answers once. Raises the item's error where it failed."""
        if self.error is not None:
            raise self.error
        return self.responses[0]


@dataclass(frozen=True, slots=True)
class BatchCounts:
    """Items by what has become of them. preempted: of the running ones. retrying: of the queued ones."""

    received: int = 0
    queued: int = 0
    running: int = 0
    preempted: int = 0
    retrying: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0

    @property
    def finished(self) -> int:
        return self.succeeded + self.failed


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """remaining_s: until all that was received has a result, at that rate; None where it is not known."""

    counts: BatchCounts
    items_per_second: float
    remaining_s: float | None


@dataclass(frozen=True, slots=True)
class BatchInfo:
    """A batch as the server has it. Times in seconds since 1970, None for what has not been yet."""

    batch_id: str
    model: str
    options: BatchOptions
    state: BatchState
    counts: BatchCounts
    complete: bool
    sequence: int
    created_at_s: float
    ended_at_s: float | None
    expires_at_s: float | None
    stored_bytes: int


def header_message(batch_id: str, model: str, options: BatchOptions) -> pb.BatchHeader:
    """Raises InvalidRequest, naming the field that can't be sent."""
    return pb.BatchHeader(
        batch_id=batch_id,
        model_name=model,
        model_version=options.version,
        priority=whole("priority", options.priority, 5),
        timeout_ms=_milliseconds("timeout_s", options.timeout_s),
        ordered=options.ordered,
        durable=options.durable,
        retry=pb.BatchRetry(
            attempts=whole("attempts", options.attempts or 0, 100),
            first_backoff_ms=_milliseconds("first_backoff_s", options.first_backoff_s),
            max_backoff_ms=_milliseconds("max_backoff_s", options.max_backoff_s),
            codes=options.retry_codes,
        ),
        result_ttl_ms=_milliseconds("result_ttl_s", options.result_ttl_s),
        labels=dict(options.labels),
    )


def _milliseconds(name: str, seconds: float | None) -> int:
    return 0 if seconds is None else whole(name, round(seconds * 1000), _MAX_MS)


def item_message(item: BatchItem) -> inference_pb.ModelInferRequest:
    """Raises InvalidRequest, naming the input or parameter that can't be sent."""
    options = InferenceOptions(outputs=item.outputs, parameters=item.parameters, request_id=item.item_id)
    return infer_request("", item.inputs, options)


def result_of(event: pb.BatchEvent) -> BatchResult:
    """Of an event that is a result or an error. Raises InvalidResponse where an answer contradicts itself."""
    if event.WhichOneof("kind") == "error":
        error = from_status_message(event.error.status)
        return BatchResult(event.error.item_id, event.sequence, error=error)
    responses = tuple(infer_outputs(response, ()) for response in event.result.responses)
    return BatchResult(event.result.item_id, event.sequence, responses)


def progress_of(progress: pb.BatchProgress) -> BatchProgress:
    return BatchProgress(_counts(progress.counts), progress.items_per_second, progress.remaining_s or None)


def info_of(batch: pb.Batch) -> BatchInfo:
    return BatchInfo(
        batch_id=batch.header.batch_id,
        model=batch.header.model_name,
        options=_options(batch.header),
        state=BatchState(pb.BatchState.Name(batch.state).removeprefix("BATCH_STATE_")),
        counts=_counts(batch.counts),
        complete=batch.complete,
        sequence=batch.sequence,
        created_at_s=batch.created_at_ms / 1000,
        ended_at_s=batch.ended_at_ms / 1000 or None,
        expires_at_s=batch.expires_at_ms / 1000 or None,
        stored_bytes=batch.stored_bytes,
    )


def _options(header: pb.BatchHeader) -> BatchOptions:
    return BatchOptions(
        version=header.model_version,
        priority=header.priority,
        timeout_s=header.timeout_ms / 1000,
        ordered=header.ordered,
        durable=header.durable,
        attempts=header.retry.attempts,
        first_backoff_s=header.retry.first_backoff_ms / 1000,
        max_backoff_s=header.retry.max_backoff_ms / 1000,
        retry_codes=tuple(header.retry.codes),
        result_ttl_s=header.result_ttl_ms / 1000,
        labels=dict(header.labels),
    )


def _counts(counts: pb.BatchCounts) -> BatchCounts:
    return BatchCounts(
        counts.received,
        counts.queued,
        counts.running,
        counts.preempted,
        counts.retrying,
        counts.succeeded,
        counts.failed,
        counts.cancelled,
    )
