"""Batches in the store: made, found and forgotten."""

import sqlite3
import time
from collections.abc import Sequence

import msgspec

from moorage.batches.durable import DurableJournal
from moorage.batches.header import Header
from moorage.batches.statements import statements
from moorage.batches.store import Store
from moorage.domain.batch_errors import BatchExists, StoreFull

_FORGET_ROWS = 1000
_FULL_FROM = 0.95
_READ_LIMIT = 200


class Shelf:
    """What the store has of batches as a whole."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def make(self, header: Header, created_at_s: float) -> DurableJournal:
        """A new batch. Raises BatchExists, and StoreFull for a store that has hardly any room left."""
        values = {"batch_id": header.batch_id, "header": msgspec.json.encode(header).decode(), "now_s": created_at_s}

        def work(connection: sqlite3.Connection) -> sqlite3.Row:
            if _fullness(connection) >= _FULL_FROM:
                raise StoreFull
            try:
                connection.execute(statements()["open"], values)
            except sqlite3.IntegrityError:
                raise BatchExists(header.batch_id) from None
            row: sqlite3.Row = connection.execute(statements()["batch"], values).fetchone()
            return row

        return DurableJournal(self._store, await self._store.do(work), (), ordered=header.ordered)

    async def find(self, batch_id: str) -> sqlite3.Row | None:
        values = {"batch_id": batch_id}
        row: sqlite3.Row | None = await self._store.do(
            lambda connection: connection.execute(statements()["batch"], values).fetchone()
        )
        return row

    async def running(self) -> Sequence[sqlite3.Row]:
        """Those that have not ended, the oldest first."""
        rows: list[sqlite3.Row] = await self._store.do(
            lambda connection: connection.execute(statements()["running"]).fetchall()
        )
        return rows

    async def older(self, before: tuple[float, str], limit: int) -> Sequence[sqlite3.Row]:
        """The newest of those that were made before another: its time and id."""
        values = {"before_s": before[0], "before_id": before[1], "limit": min(limit, _READ_LIMIT)}
        rows: list[sqlite3.Row] = await self._store.do(
            lambda connection: connection.execute(statements()["newest"], values).fetchall()
        )
        return rows

    async def journal(self, row: sqlite3.Row) -> DurableJournal:
        """Of a batch that was found."""
        header = header_of(row)
        values = {"batch": row["number"], "numbered": row["numbered"]}

        def work(connection: sqlite3.Connection) -> list[int]:
            return [found["position"] for found in connection.execute(statements()["early"], values)]

        early = await self._store.do(work) if header.ordered and row["state"] == "running" else []
        return DurableJournal(self._store, row, early, ordered=header.ordered)

    async def forget(self, number: int) -> None:
        """A batch and all of its items, bit by bit: others have their turn meanwhile."""
        values = {"batch": number, "limit": _FORGET_ROWS}
        while await self._store.do(
            lambda connection: connection.execute(statements()["forget_items"], values).rowcount
        ):
            await self._store.do(_give_back)
        await self._store.do(lambda connection: connection.execute(statements()["forget_batch"], values))

    async def forget_expired(self) -> None:
        """Those whose results are kept no longer."""
        while True:
            row = await self._store.do(_first_expired)
            if row is None:
                return
            await self.forget(row["number"])


def header_of(row: sqlite3.Row) -> Header:
    """Raises msgspec.ValidationError for what is none."""
    return msgspec.json.decode(row["header"], type=Header)


def _first_expired(connection: sqlite3.Connection) -> sqlite3.Row | None:
    row: sqlite3.Row | None = connection.execute(statements()["expired"], {"now_s": time.time()}).fetchone()
    return row


def _fullness(connection: sqlite3.Connection) -> float:
    """Of the most pages that the file may have, those that are in use."""
    pages, free, most = (
        connection.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("page_count", "freelist_count", "max_page_count")
    )
    return float((pages - free) / most)


def _give_back(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA incremental_vacuum(1000)").fetchall()
