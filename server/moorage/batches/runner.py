"""Feeds a batch's items to the engine, and has its journal keep what becomes of them."""

import asyncio
import heapq
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from moorage.batches.feeding import Window
from moorage.batches.header import Header
from moorage.batches.items import Item, ItemState, Outcome, UnderWay
from moorage.batches.journal import Journal
from moorage.batches.persistence import until_kept
from moorage.batches.ports import Edge, Engine, Prepared
from moorage.batches.retrying import decide
from moorage.domain.batch_errors import ResultTooLarge
from moorage.domain.errors import MoorageError
from moorage.domain.tensor import OutputTensor

_PAGE_ITEMS = 256
_PAGE_BYTES = 8 * 1024 * 1024
# Of outcomes that are not kept yet, before no more items are begun.
_MOST_UNKEPT = 4096
# In order, so far may items be ahead of the first that has no outcome.
_MOST_AHEAD = 8192
# Items that wait to be tried again, before no others are begun.
_MOST_RETRYING = 1024
MAX_RESULT_BYTES = 64 * 1024 * 1024


@dataclass(slots=True, eq=False)
class _Running:
    """An item that the engine has. parts: of a decoupled model, its answers so far."""

    item: Item
    rows: int
    size_bytes: int
    parts: list[bytes] = field(default_factory=list)
    parts_bytes: int = 0
    preempted: bool = False


class Runner:
    """Of one batch. tell: is called when outcomes are kept; tell_state: with an item's id and what it does now."""

    def __init__(
        self,
        header: Header,
        journal: Journal,
        engine: Engine,
        edge: Edge,
        tell: Callable[[], None],
        tell_state: Callable[[str, ItemState], None],
    ) -> None:
        self._header = header
        self._journal = journal
        self._engine = engine
        self._edge = edge
        self._tell = tell
        self._tell_state = tell_state
        self._window = Window()
        self._running: dict[int, _Running] = {}
        self._page: deque[Item] = deque()
        self._cursor = -1
        self._attempts: dict[int, int] = {}
        self._again: list[tuple[float, int, Item]] = []
        self._unkept: list[Outcome] = []
        self._may_feed = asyncio.Event()
        self._has_outcomes = asyncio.Event()
        self._paused_until_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_s = 0.0
        self._is_stopping = False
        self._random = random.Random()

    @property
    def under_way(self) -> UnderWay:
        preempted = sum(running.preempted for running in self._running.values())
        return UnderWay(len(self._running), preempted, len(self._again))

    def gave_way(self, request_id: int, *, given_way: bool) -> None:
        """A request gave way to others, or goes on. Without effect on one that is not of this batch."""
        running = self._running.get(request_id)
        if running is not None:
            running.preempted = given_way
            self._tell_state(running.item.item_id, ItemState.PREEMPTED if given_way else ItemState.RUNNING)

    def more(self) -> None:
        """There may be items, or none may come any more."""
        self._may_feed.set()
        self._has_outcomes.set()

    def stop_feeding(self) -> None:
        """Begin no more items. What is under way still gets its outcome."""
        self._is_stopping = True

    async def run(self, deadline_s: float) -> None:
        """Until every item has an outcome and no more can come. Cancellation: what is under way is given up."""
        feeder = asyncio.create_task(self._feed(deadline_s))
        keeper = asyncio.create_task(self._keep())
        try:
            await asyncio.wait((feeder, keeper), return_when=asyncio.FIRST_COMPLETED)
            for task in (keeper, feeder):
                if task.done():
                    task.result()
        finally:
            await self._end(feeder, keeper)

    async def _end(self, *tasks: "asyncio.Task[None]") -> None:
        if self._timer is not None:
            self._timer.cancel()
        for request_id in tuple(self._running):
            del self._running[request_id]
            self._engine.give_up(request_id)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _feed(self, deadline_s: float) -> None:
        while True:
            self._may_feed.clear()
            if self._is_due():
                await self._begin_due(deadline_s)
            await self._may_feed.wait()

    def _is_due(self) -> bool:
        now = self._engine.now()
        if now < self._paused_until_s:
            self._wake_at(self._paused_until_s)
            return False
        return not self._is_stopping

    async def _begin_due(self, deadline_s: float) -> None:
        """Begin as many items as there is room for."""
        while not (self._is_stopping or self._window.is_full or self._is_far_ahead):
            item = await self._next_item()
            if item is None or self._engine.now() < self._paused_until_s:
                if item is not None:
                    self._page.appendleft(item)
                    self._may_feed.set()
                return
            await self._begin(item, deadline_s)

    @property
    def _is_far_ahead(self) -> bool:
        ahead = self._cursor - self._journal.last_sequence
        return len(self._unkept) >= _MOST_UNKEPT or (self._header.ordered and ahead >= _MOST_AHEAD)

    async def _next_item(self) -> Item | None:
        """One that is to be tried again now, else the next that has not been tried."""
        if self._again:
            due_s = self._again[0][0]
            if due_s <= self._engine.now():
                return heapq.heappop(self._again)[2]
            self._wake_at(due_s)
            if len(self._again) >= _MOST_RETRYING:
                return None
        if not self._page:
            self._page.extend(await self._journal.take(self._cursor, _PAGE_ITEMS, _PAGE_BYTES))
            if not self._page:
                return None
            self._cursor = self._page[-1].position
        return self._page.popleft()

    async def _begin(self, item: Item, deadline_s: float) -> None:
        try:
            remaining_s = deadline_s - self._engine.now()
            prepared = await self._edge.prepare(item.payload, item.item_id, self._header, remaining_s)
            self._window.fit(self._engine.resolve(self._header.model, self._header.model_version)[1])
        except MoorageError as error:
            self._failed(item, error)
            return
        request = prepared.request
        running = _Running(item, request.rows, request.size_bytes)
        self._window.enter(running.rows, running.size_bytes)
        self._running[request.request_id] = running
        emit = self._emitter(request.request_id, running, prepared) if prepared.decoupled else None
        future = self._engine.begin(request, prepared.render, emit)
        future.add_done_callback(lambda done: self._done(request.request_id, done))
        if self._header.item_states:
            self._tell_state(item.item_id, ItemState.RUNNING)

    def _emitter(
        self, request_id: int, running: _Running, prepared: Prepared
    ) -> Callable[[tuple[OutputTensor, ...]], None]:
        def emit(outputs: tuple[OutputTensor, ...]) -> None:
            part = prepared.render(outputs)
            running.preempted = False
            running.parts.append(part)
            running.parts_bytes += len(part)
            running.size_bytes += len(part)
            self._window.enter(0, len(part))
            if running.parts_bytes > MAX_RESULT_BYTES and request_id in self._running:
                del self._running[request_id]
                self._engine.give_up(request_id)
                self._leave(running)
                self._failed(running.item, ResultTooLarge(running.item.item_id, MAX_RESULT_BYTES))

        return emit

    def _leave(self, running: _Running) -> None:
        self._window.leave(running.rows, running.size_bytes)
        self._may_feed.set()

    def _done(self, request_id: int, future: "asyncio.Future[bytes]") -> None:
        """The engine has an answer, or an error."""
        running = self._running.pop(request_id, None)
        error = None if future.cancelled() else future.exception()
        if running is None:
            return
        self._leave(running)
        if future.cancelled():
            return  # the engine has gone
        if error is not None:
            self._failed(running.item, error)
            return
        self._keep_outcome(running.item, b"".join((*running.parts, future.result())), failed=False)

    def _failed(self, item: Item, error: BaseException) -> None:
        attempts = self._attempts.get(item.position, 0) + 1
        told = self._edge.failure(error)
        retry = None
        if isinstance(error, MoorageError):
            retry = decide(self._header.retry, error, told.code, attempts, self._random.random())
        if retry is None:
            self._keep_outcome(item, told.content, failed=True)
            return
        due_s = self._engine.now() + retry.delay_s
        if retry.costs_attempt:
            self._attempts[item.position] = attempts
            self._tell_state(item.item_id, ItemState.RETRYING)
        else:
            self._paused_until_s = max(self._paused_until_s, due_s)
        heapq.heappush(self._again, (due_s, item.position, item))
        self._wake_at(due_s)

    def _keep_outcome(self, item: Item, content: bytes, *, failed: bool) -> None:
        self._attempts.pop(item.position, None)
        self._unkept.append(Outcome(item.position, item.item_id, failed, content))
        self._has_outcomes.set()

    def _wake_at(self, due_s: float) -> None:
        """Have the feeder look again then, or before."""
        now = self._engine.now()
        if now < self._timer_at_s <= due_s:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at_s = due_s
        self._timer = asyncio.get_running_loop().call_later(max(0.0, due_s - now), self._may_feed.set)

    async def _keep(self) -> None:
        """Have outcomes kept, all that have come meanwhile at once, until the batch is done."""
        while not self._is_done:
            await self._has_outcomes.wait()
            self._has_outcomes.clear()
            outcomes, self._unkept = self._unkept, []
            if outcomes:
                await until_kept(partial(self._journal.finish, outcomes))
                self._may_feed.set()
                self._tell()

    @property
    def _is_done(self) -> bool:
        return self._journal.complete and not self._journal.counts.open
