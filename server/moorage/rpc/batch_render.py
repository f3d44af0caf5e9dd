"""Batches, their events and what became of items as messages of moorage.v1."""

from collections.abc import Sequence

from moorage.batches.batch import BatchView
from moorage.batches.header import Header
from moorage.batches.items import BatchState, ItemState, Outcome
from moorage.batches.progress import Pace
from moorage.rpc.wire import varint
from moorage_protocol import moorage_v1 as pb

_STATES = {
    BatchState.RUNNING: pb.BATCH_STATE_RUNNING,
    BatchState.DONE: pb.BATCH_STATE_DONE,
    BatchState.CANCELLED: pb.BATCH_STATE_CANCELLED,
    BatchState.EXPIRED: pb.BATCH_STATE_EXPIRED,
}
_ITEM_STATES = {
    ItemState.RUNNING: pb.ITEM_STATE_RUNNING,
    ItemState.PREEMPTED: pb.ITEM_STATE_PREEMPTED,
    ItemState.RETRYING: pb.ITEM_STATE_RETRYING,
}

# Serialized by hand, as what became of an item is serialized already: it is copied once.
_EVENTS_TAG = bytes((1 << 3 | 2,))  # of SubmitResponse and AttachResponse
_SEQUENCE_TAG = bytes((1 << 3,))
_RESULT_TAG = bytes((4 << 3 | 2,))
_ERROR_TAG = bytes((5 << 3 | 2,))
_ITEM_ID_TAG = bytes((1 << 3 | 2,))  # of BatchResult and BatchItemError
RESPONSE_TAG = bytes((2 << 3 | 2,))  # likewise: an answer, or the status


def outcomes_message(outcomes: Sequence[Outcome]) -> bytes:
    """Serialized, what stands for these outcomes in a SubmitResponse or AttachResponse."""
    parts: list[bytes] = []
    for outcome in outcomes:
        item_id = outcome.item_id.encode()
        head = b"".join((_ITEM_ID_TAG, varint(len(item_id)), item_id))
        kind = _ERROR_TAG if outcome.failed else _RESULT_TAG
        sequence = _SEQUENCE_TAG + varint(outcome.sequence)
        size = varint(len(head) + len(outcome.content))
        whole = len(sequence) + len(kind) + len(size) + len(head) + len(outcome.content)
        parts += (_EVENTS_TAG, varint(whole), sequence, kind, size, head, outcome.content)
    return b"".join(parts)


def framed(parts: Sequence[bytes | memoryview]) -> bytes:
    """An answer or status as it stands in BatchResult or BatchItemError."""
    return b"".join((RESPONSE_TAG, varint(sum(map(len, parts))), *parts))


def opened_event(view: BatchView, sequence: int, credit_items: int, first_sequence: int) -> pb.BatchEvent:
    opened = pb.BatchOpened(batch=batch_message(view), credit_items=credit_items, first_sequence=first_sequence)
    return pb.BatchEvent(sequence=sequence, opened=opened)


def state_event(sequence: int, item_id: str, state: ItemState) -> pb.BatchEvent:
    return pb.BatchEvent(sequence=sequence, item_state=pb.BatchItemState(item_id=item_id, state=_ITEM_STATES[state]))


def progress_event(view: BatchView, sequence: int, pace: Pace) -> pb.BatchEvent:
    counts = counts_message(view)
    progress = pb.BatchProgress(
        counts=counts, items_per_second=pace.per_second, remaining_s=pace.remaining_s(view.counts.open)
    )
    return pb.BatchEvent(sequence=sequence, progress=progress)


def summary_event(view: BatchView) -> pb.BatchEvent:
    return pb.BatchEvent(sequence=view.sequence + 1, summary=pb.BatchSummary(batch=batch_message(view)))


def batch_message(view: BatchView) -> pb.Batch:
    """A batch as it is."""
    return pb.Batch(
        header=_header_message(view.header),
        state=_STATES[view.state],
        counts=counts_message(view),
        complete=view.complete,
        sequence=view.sequence,
        created_at_ms=_milliseconds(view.created_at_s),
        ended_at_ms=_milliseconds(view.ended_at_s),
        expires_at_ms=_milliseconds(view.expires_at_s),
        stored_bytes=view.stored_bytes,
    )


def counts_message(view: BatchView) -> pb.BatchCounts:
    counts, under_way = view.counts, view.under_way
    return pb.BatchCounts(
        received=counts.received,
        queued=max(0, counts.open - under_way.running),
        running=under_way.running,
        preempted=under_way.preempted,
        retrying=under_way.retrying,
        succeeded=counts.succeeded,
        failed=counts.failed,
        cancelled=counts.cancelled,
    )


def _header_message(header: Header) -> pb.BatchHeader:
    retry = header.retry
    return pb.BatchHeader(
        batch_id=header.batch_id,
        model_name=header.model,
        model_version=header.model_version,
        priority=header.priority,
        timeout_ms=round(header.timeout_s * 1000),
        ordered=header.ordered,
        durable=header.durable,
        retry=pb.BatchRetry(
            attempts=retry.attempts,
            first_backoff_ms=round(retry.first_backoff_s * 1000),
            max_backoff_ms=round(retry.max_backoff_s * 1000),
            codes=retry.codes,
        ),
        result_ttl_ms=round(header.result_ttl_s * 1000),
        labels=header.labels,
        item_states=header.item_states,
    )


def _milliseconds(seconds: float | None) -> int:
    return 0 if seconds is None else round(seconds * 1000)
