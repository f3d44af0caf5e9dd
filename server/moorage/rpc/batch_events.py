"""What is told of a batch on one call: serialized messages of a SubmitResponse or AttachResponse."""

import asyncio
from collections.abc import AsyncGenerator, Coroutine

from moorage.batches.batch import Batch
from moorage.batches.items import Added
from moorage.batches.progress import Pace
from moorage.batches.reader import Reader
from moorage.domain.batch_errors import BatchNotFound, BatchTakenOver
from moorage.rpc.batch_render import opened_event, outcomes_message, progress_event, state_event, summary_event
from moorage_protocol import moorage_v1 as pb

_PROGRESS_S = 0.5
# Of a call that ends while its client still writes, gRPC's Python client loses what it has not read.
_FAREWELL_S = 5.0


class Submission:
    """What a call has sent. Its reading is a task of its own."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self._items = self._duplicates = 0
        self._told = (0, 0)
        self._task: asyncio.Task[None] | None = None
        self._taken_over = False
        self._reader: Reader | None = None

    def begin(self, reading: Coroutine[None, None, None]) -> None:
        self._task = asyncio.create_task(reading)
        self._task.add_done_callback(lambda _: self._wake())

    def heard_by(self, reader: Reader) -> None:
        """This one is to be woken by what happens here."""
        self._reader = reader
        self._wake()

    def _wake(self) -> None:
        if self._reader is not None:
            self._reader.wake()

    def added(self, items: int, added: Added) -> None:
        """So many of the call's items are kept."""
        self._items += items
        self._duplicates += added.duplicates
        self._wake()

    @property
    def credit_items(self) -> int:
        """So many of the call's items may be sent by now."""
        return self._items + self.batch.journal.room

    def news(self, sequence: int) -> pb.BatchEvent | None:
        """What is kept since this was asked last, or whether there is much more room."""
        items, credit_items = self._items, self.credit_items
        told_items, told_credit_items = self._told
        if items == told_items and credit_items - told_credit_items < max(1, self.batch.journal.room // 2):
            return None
        self._told = (items, credit_items)
        acknowledged = pb.BatchAcknowledged(items=items, credit_items=credit_items, duplicates=self._duplicates)
        return pb.BatchEvent(sequence=sequence, acknowledged=acknowledged)

    def check(self) -> None:
        """Raise what the call has to end with."""
        if self._taken_over:
            raise BatchTakenOver(self.batch.header.batch_id)
        if self._task is not None and self._task.done() and not self._task.cancelled():
            self._task.result()

    @property
    def is_read(self) -> bool:
        """Whether all that the client sends is kept."""
        return (
            self._task is not None and self._task.done() and not self._task.cancelled() and not self._task.exception()
        )

    async def client_finishes(self, limit_s: float) -> None:
        """Wait until the client has nothing more to send, or has gone; not for ever."""
        if self._task is not None:
            await asyncio.wait((self._task,), timeout=limit_s)

    async def end(self, *, taken_over: bool = False) -> None:
        """Read no more. Returns when nothing more will be added."""
        self._taken_over |= taken_over
        self._wake()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
            if not self._task.cancelled():
                self._task.exception()  # else asyncio says that nobody looked at it


class Events:
    """The events of one call, from an outcome on."""

    def __init__(self, batch: Batch, after_sequence: int, submission: Submission | None) -> None:
        """submission: of a call that sends items."""
        self._batch = batch
        self._after_sequence = after_sequence
        self._submission = submission
        self._pace = Pace()
        self._progress_at_s = 0.0
        self._progress_told: object = None

    async def messages(self) -> AsyncGenerator[bytes]:
        """Until the summary. Raises what the submission fails with, BatchTakenOver and ServerDraining."""
        with self._batch.reading(self._after_sequence) as reader:
            if self._submission is not None:
                self._submission.heard_by(reader)
            yield _message([self._opened()])
            while not self._is_over(reader):
                if self._submission is not None:
                    self._submission.check()
                outcomes = await reader.outcomes()
                if not outcomes and reader.has_more:
                    raise BatchNotFound(self._batch.header.batch_id)  # forgotten meanwhile
                message = _message(self._beside(reader)) + outcomes_message(outcomes)
                if message:
                    yield message
                    reader.took(outcomes)
                if not outcomes:
                    await reader.wait(_PROGRESS_S)
            yield _message([*self._beside(reader), summary_event(self._batch.view())])
        if self._submission is not None:
            await self._submission.client_finishes(_FAREWELL_S)

    def _is_over(self, reader: Reader) -> bool:
        """Whether all is told, and nothing more will come that has to be kept, or refused."""
        submission = self._submission
        return reader.is_at_end and (submission is None or submission.is_read or self._batch.was_cut_short)

    def _opened(self) -> pb.BatchEvent:
        credit_items = self._submission.credit_items if self._submission is not None else 0
        first_sequence = self._batch.journal.first_sequence
        return opened_event(self._batch.view(), self._after_sequence, credit_items, first_sequence)

    def _beside(self, reader: Reader) -> list[pb.BatchEvent]:
        """What there is to be told besides outcomes."""
        events: list[pb.BatchEvent] = []
        news = self._submission.news(reader.sequence) if self._submission is not None else None
        if news is not None:
            events.append(news)
        events += [state_event(reader.sequence, item_id, state) for item_id, state in reader.states()]
        now_s = asyncio.get_running_loop().time()
        if now_s - self._progress_at_s >= _PROGRESS_S:
            self._progress_at_s = now_s
            events += self._progress(reader, now_s)
        return events

    def _progress(self, reader: Reader, now_s: float) -> list[pb.BatchEvent]:
        view = self._batch.view()
        self._pace.mark(now_s, view.counts.finished)
        told = (view.counts, view.under_way)
        if told == self._progress_told:
            return []
        self._progress_told = told
        return [progress_event(view, reader.sequence, self._pace)]


def _message(events: list[pb.BatchEvent]) -> bytes:
    return pb.SubmitResponse(events=events).SerializeToString() if events else b""
