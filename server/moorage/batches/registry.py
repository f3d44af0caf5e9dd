"""All batches of a server: opened, found, gone on with after a restart, and forgotten."""

import asyncio
import logging
import sqlite3
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from moorage.batches.batch import Batch, BatchView
from moorage.batches.database import StoreInUse, StoreRefused
from moorage.batches.header import Header
from moorage.batches.items import BatchState
from moorage.batches.journal import Journal
from moorage.batches.memory import MemoryJournal
from moorage.batches.ports import Edge, Engine
from moorage.batches.shelf import Shelf, header_of
from moorage.batches.store import Store
from moorage.domain.batch_errors import BatchActive, BatchExists, BatchNotFound, StoreFailed, TooManyBatches
from moorage.domain.errors import MoorageError, NotSupported, ServerDraining
from moorage.scheduling.actions import Action, Drop, Execute, Suspend
from moorage.scheduling.events import Event

_CHORES_S = 5.0
_PAGE = 200

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """path: of the store, None for no durable batches; max_bytes: of its file. fsync: whether what is acknowledged
    survives the loss of power. max_running: batches at once. window_items, window_bytes: of a batch that is not
    durable, what may be there that no reader has taken."""

    path: Path | None = None
    max_bytes: int = 16 * 1024**3
    fsync: bool = True
    max_running: int = 256
    window_items: int = 1024
    window_bytes: int = 64 * 1024 * 1024


class Batches:
    """Owns them, and the store."""

    def __init__(self, engine: Engine, edge: Edge, limits: BatchLimits) -> None:
        self.limits = limits
        self._engine = engine
        self._edge = edge
        self._batches: dict[str, Batch] = {}
        self._store: Store | None = None
        self._shelf: Shelf | None = None
        self._opening = asyncio.Lock()
        self._finding_shelf = asyncio.Lock()
        self._is_stopping = False
        self._has_away = False

    async def start(self) -> None:
        """Go on with what an earlier server has left, if there is a store.

        Raises StoreRefused for a file that is not ours to use.
        """
        path = self.limits.path
        if path is not None and path.exists():
            try:
                await self._have_shelf()
            except StoreInUse as error:
                log.warning("%s: durable batches wait until it has ended", error)
            except StoreFailed as error:
                log.error("durable batches are not available: %s", error)

    async def chores(self) -> None:
        """Without end: forget what has expired, and take over a store that another server has left."""
        while True:
            await asyncio.sleep(_CHORES_S)
            self._forget_expired()
            try:
                await self.start()
                if self._shelf is not None:
                    await self._shelf.forget_expired()
            except (StoreRefused, MoorageError) as error:
                log.warning("store of batches: %s", error)

    async def open(self, header: Header) -> Batch:
        """A new batch, or the one that has this header.

        Raises BatchExists where its id is another's, TooManyBatches, StoreFull, StoreFailed and ServerDraining.
        """
        async with self._opening:
            try:
                batch = await self.find(header.batch_id)
            except BatchNotFound:
                return await self._make(header)
            if batch.header != header:
                raise BatchExists(header.batch_id)
            return batch

    async def _make(self, header: Header) -> Batch:
        if self._is_stopping:
            raise ServerDraining
        running = sum(not batch.has_ended for batch in self._batches.values())
        if running >= self.limits.max_running:
            raise TooManyBatches(running, self.limits.max_running)
        now_s = time.time()
        journal: Journal
        if header.durable:
            journal = await (await self._have_shelf(asked=True)).make(header, now_s)
        else:
            journal = MemoryJournal(self.limits.window_items, self.limits.window_bytes, ordered=header.ordered)
        return self._begin(header, journal, now_s)

    def _begin(self, header: Header, journal: Journal, created_at_s: float) -> Batch:
        batch = self._batches[header.batch_id] = Batch(header, journal, created_at_s, self._engine, self._edge)
        batch.begin()
        return batch

    async def _have_shelf(self, *, asked: bool = False) -> Shelf:
        """The store, opened and gone on with. asked: by a client, who is told why there is none."""
        async with self._finding_shelf:
            if self._shelf is None:
                self._shelf = await self._open_shelf(asked=asked)
            return self._shelf

    async def _open_shelf(self, *, asked: bool) -> Shelf:
        path = self.limits.path
        if path is None:
            raise NotSupported('this server has no durable batches (batches.path = "off")')
        store = Store(path, max_bytes=self.limits.max_bytes, fsync=self.limits.fsync)
        try:
            await store.open()
        except (StoreRefused, sqlite3.Error, OSError) as error:
            if isinstance(error, StoreRefused) and not asked:
                raise
            log.warning("store of batches: %s", error)
            raise StoreFailed("the store of durable batches can't be used; the server's log says why") from error
        self._store, shelf = store, Shelf(store)
        for row in await shelf.running():
            self._begin(header_of(row), await shelf.journal(row), row["created_at_s"])
        return shelf

    async def find(self, batch_id: str) -> Batch:
        """Raises BatchNotFound."""
        batch = self._batches.get(batch_id)
        if batch is not None:
            return batch
        row = await self._shelf.find(batch_id) if self._shelf is not None else None
        if self._shelf is None or row is None:
            raise BatchNotFound(batch_id)
        # Kept for as long as somebody reads it, so that who deletes it meets them.
        batch = self._batches[batch_id] = await self._ended(self._shelf, row)
        return batch

    async def _ended(self, shelf: Shelf, row: sqlite3.Row) -> Batch:
        batch = Batch(header_of(row), await shelf.journal(row), row["created_at_s"], self._engine, self._edge)
        batch.state = BatchState(row["state"])
        batch.ended_at_s, batch.expires_at_s = row["ended_at_s"], row["expires_at_s"]
        return batch

    async def newest(self, before: tuple[float, str], limit: int, labels: Mapping[str, str]) -> list[BatchView]:
        """Batches that have these labels, the newest first, of those that were made before another: its time and id."""
        found = [batch.view() for batch in self._batches.values() if not batch.header.durable or not batch.has_ended]
        found = [view for view in found if _age(view) < before and _has(view, labels)]
        if self._shelf is not None:
            found += await self._stored(self._shelf, before, limit, labels)
        return sorted(found, key=_age, reverse=True)[:limit]

    async def _stored(
        self, shelf: Shelf, before: tuple[float, str], limit: int, labels: Mapping[str, str]
    ) -> list[BatchView]:
        """Of those that have ended, and are known from the store alone."""
        found: list[BatchView] = []
        while len(found) < limit:
            rows = await shelf.older(before, _PAGE)
            for row in rows:
                before = (row["created_at_s"], row["batch_id"])
                if row["state"] != BatchState.RUNNING.value:
                    view = (await self._ended(shelf, row)).view()
                    found += [view] if _has(view, labels) else []
            if len(rows) < _PAGE:
                break
        return found

    async def cancel(self, batch_id: str) -> Batch:
        """End a batch. Raises BatchNotFound."""
        batch = await self.find(batch_id)
        await batch.cancel()
        return batch

    async def delete(self, batch_id: str) -> None:
        """Forget a batch that has ended. Raises BatchNotFound and BatchActive."""
        batch = await self.find(batch_id)
        if not batch.has_ended:
            raise BatchActive(batch_id)
        self._batches.pop(batch_id, None)
        batch.end_readers(BatchNotFound(batch_id))
        if batch.header.durable and self._shelf is not None:
            row = await self._shelf.find(batch_id)
            if row is not None:
                await self._shelf.forget(row["number"])

    def _forget_expired(self) -> None:
        """What has ended need not be in memory: of durable ones the store has all."""
        for batch_id, batch in tuple(self._batches.items()):
            expires_at_s = batch.expires_at_s
            if expires_at_s is not None and not batch.is_read and (batch.header.durable or expires_at_s <= time.time()):
                del self._batches[batch_id]

    def decided(self, _: Event, decided: Sequence[Action]) -> None:
        """The scheduler has decided this: some requests may have given way, or go on."""
        for action in decided:
            if isinstance(action, Suspend | Drop):
                self._tell(action.request_ids, given_way=True)
            elif self._has_away and isinstance(action, Execute):
                self._tell([entry.request.request_id for entry in action.run.entries], given_way=False)

    def _tell(self, request_ids: Collection[int], *, given_way: bool) -> None:
        for batch in self._batches.values():
            for request_id in request_ids:
                batch.gave_way(request_id, given_way=given_way)
        self._has_away = any(batch.has_away for batch in self._batches.values())

    def stop_feeding(self) -> None:
        """The server drains: what runs gets its outcome, and nothing more is begun."""
        self._is_stopping = True
        for batch in self._batches.values():
            batch.stop_feeding()

    def end_readers(self) -> None:
        """Nobody will hear more of any batch from this server."""
        self._is_stopping = True
        for batch in self._batches.values():
            batch.end_readers(ServerDraining())

    async def close(self) -> None:
        """End all that runs here. Durable batches go on with the next server."""
        self._is_stopping = True
        for batch in self._batches.values():
            await batch.close()
        if self._store is not None:
            await self._store.close()


def _age(view: BatchView) -> tuple[float, str]:
    return view.created_at_s, view.header.batch_id


def _has(view: BatchView, labels: Mapping[str, str]) -> bool:
    return all(view.header.labels.get(key) == value for key, value in labels.items())
