"""A batch that is under way, or whose outcomes are still kept."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from moorage.batches.header import Header
from moorage.batches.items import Added, BatchState, Counts, ItemState, Submitted, UnderWay
from moorage.batches.journal import Journal
from moorage.batches.persistence import finished_anyway, until_kept
from moorage.batches.ports import Edge, Engine
from moorage.batches.reader import Reader
from moorage.batches.runner import Runner
from moorage.domain.batch_errors import BatchEnded

_CUT_SHORT = frozenset({BatchState.CANCELLED, BatchState.EXPIRED})
# So long what is not durable is kept once it has ended.
MEMORY_TTL_S = 60.0


log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BatchView:
    """A batch at one moment. Times in seconds since 1970, None for what has not been yet. sequence: of the last outcome
    that can be told."""

    header: Header
    state: BatchState
    counts: Counts
    under_way: UnderWay
    complete: bool
    sequence: int
    created_at_s: float
    ended_at_s: float | None
    expires_at_s: float | None
    stored_bytes: int


class Batch:
    """Owned by the registry. wall_clock: seconds since 1970."""

    def __init__(self, header: Header, journal: Journal, created_at_s: float, engine: Engine, edge: Edge) -> None:
        self.header = header
        self.journal = journal
        self.state = BatchState.RUNNING
        self.created_at_s = created_at_s
        self.ended_at_s: float | None = None
        self.expires_at_s: float | None = None
        self._engine = engine
        self._readers: set[Reader] = set()
        self._adding = asyncio.Lock()
        self._stopped_by: BatchState | None = None
        self._failure: Exception | None = None
        self._is_ending = False
        self._task: asyncio.Task[None] | None = None
        self._runner = Runner(header, journal, engine, edge, self._changed, self._item_state)

    def view(self) -> BatchView:
        return BatchView(
            header=self.header,
            state=self.state,
            counts=replace(self.journal.counts),
            under_way=self._runner.under_way,
            complete=self.journal.complete,
            sequence=self.journal.last_sequence,
            created_at_s=self.created_at_s,
            ended_at_s=self.ended_at_s,
            expires_at_s=self.expires_at_s,
            stored_bytes=self.journal.stored_bytes,
        )

    @property
    def has_ended(self) -> bool:
        return self.state is not BatchState.RUNNING

    @property
    def was_cut_short(self) -> bool:
        """Whether it ended before its items did."""
        return self.state in _CUT_SHORT

    @property
    def is_read(self) -> bool:
        """Whether somebody reads what happens."""
        return bool(self._readers)

    def begin(self) -> None:
        """Have its items run."""
        self._task = asyncio.create_task(self._run(), name=f"batch {self.header.batch_id}")

    async def add(self, items: Sequence[Submitted]) -> Added:
        """Keep new items; waits while there is no room. Raises BatchEnded for what comes after the last, and StoreFull.

        What comes to a batch that was cut short is not kept, as it would be cancelled. Cancellation: all are kept, or,
        of a batch that is not durable, the first ones.
        """
        async with self._adding:
            if self.was_cut_short:
                return Added(0, 0)
            if self.journal.complete:
                return await self._all_known(items)
            # Of a durable batch what is being written is counted afterwards, whoever still waits for it.
            adding = self.journal.add(items)
            added = await (finished_anyway(adding) if self.header.durable else adding)
        self._runner.more()
        return added

    async def _all_known(self, items: Sequence[Submitted]) -> Added:
        """Items that are sent again after the last."""
        if await self.journal.known(items) < len(items):
            raise BatchEnded(self.header.batch_id)
        return Added(0, len(items))

    async def complete(self) -> None:
        """There will be no more items."""
        async with self._adding:
            if not self.journal.complete:
                await finished_anyway(self.journal.close_to_items())
        self._runner.more()

    async def cancel(self) -> None:
        """End it: items without an outcome get none. Returns when that is kept. Without effect on an ended one."""
        await self._stop(BatchState.CANCELLED)

    @property
    def has_away(self) -> bool:
        """Whether any of its requests has given way, and not gone on yet."""
        return not self.has_ended and self._runner.under_way.preempted > 0

    def gave_way(self, request_id: int, *, given_way: bool) -> None:
        """A request gave way to others, or goes on. Without effect on one that is not of this batch."""
        self._runner.gave_way(request_id, given_way=given_way)

    def stop_feeding(self) -> None:
        """Begin no more items."""
        self._runner.stop_feeding()

    async def close(self) -> None:
        """The server ends: what is under way is given up. A durable batch goes on with the next server."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def end_readers(self, failure: Exception) -> None:
        """Nobody will hear more of it from this server, and why."""
        self._failure = failure
        for reader in self._readers:
            reader.end_with(failure)

    @contextlib.contextmanager
    def reading(self, after_sequence: int) -> Iterator[Reader]:
        """A reader of what happens, from an outcome on."""
        reader = Reader(self.journal, lambda: self.has_ended, after_sequence)
        if self._failure is not None:
            reader.end_with(self._failure)
        self._readers.add(reader)
        try:
            yield reader
        finally:
            self._readers.discard(reader)

    def _changed(self) -> None:
        for reader in self._readers:
            reader.wake()

    def _item_state(self, item_id: str, state: ItemState) -> None:
        if self.header.item_states:
            for reader in self._readers:
                reader.add_state(item_id, state)

    async def _run(self) -> None:
        try:
            await self._run_until_it_ends()
        except Exception as error:
            # A durable one is gone on with by the next server.
            log.exception("batch %s can't go on", self.header.batch_id)
            self.end_readers(error)

    async def _run_until_it_ends(self) -> None:
        left_s = self.created_at_s + self.header.timeout_s - time.time()
        try:
            async with asyncio.timeout(max(0.0, left_s)):
                await self._runner.run(self._engine.now() + left_s)
        except TimeoutError:
            await self._end(BatchState.EXPIRED)
        except asyncio.CancelledError:
            if self._stopped_by is None:
                raise
            await self._end(self._stopped_by)
        else:
            await self._end(BatchState.DONE)

    async def _stop(self, state: BatchState) -> None:
        if self.has_ended or self._task is None or self._task.done():
            return
        if self._stopped_by is None and not self._is_ending:
            self._stopped_by = state
            self._task.cancel()
        await asyncio.wait((self._task,))
        if not self.has_ended and self._task.cancelled() and not self._is_ending:
            await self._end(state)  # it had not even begun

    async def _end(self, state: BatchState) -> None:
        self._is_ending = True
        ended_at_s = time.time()
        ttl_s = self.header.result_ttl_s if self.header.durable else min(MEMORY_TTL_S, self.header.result_ttl_s)
        self.journal.take_no_more()
        async with self._adding:
            await until_kept(lambda: self.journal.end(state, ended_at_s, ended_at_s + ttl_s))
            self.state, self.ended_at_s, self.expires_at_s = state, ended_at_s, ended_at_s + ttl_s
        self._changed()
