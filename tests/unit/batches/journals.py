"""Journals of both kinds, to be held to one contract."""

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from moorage.batches.header import Header
from moorage.batches.items import Outcome, Submitted
from moorage.batches.journal import Journal
from moorage.batches.memory import MemoryJournal
from moorage.batches.shelf import Shelf
from moorage.batches.store import Store

KINDS = ("memory", "durable")
PAGE = (1000, 10**9)
"""So many items and bytes that all there are come at once."""


@asynccontextmanager
async def opened(path: Path, max_bytes: int = 64 * 1024 * 1024) -> AsyncIterator[Store]:
    """A store, for as long as one is inside."""
    store = Store(path, max_bytes=max_bytes, fsync=False)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def journal_of(kind: str, folder: Path, *, ordered: bool = False) -> AsyncIterator[Journal]:
    """A new journal without items."""
    if kind == "memory":
        yield MemoryJournal(10_000, 10**9, ordered=ordered)
        return
    async with opened(folder / "batches.db") as store:
        yield await Shelf(store).make(Header("a", "model", ordered=ordered, durable=True), time.time())


def some(*item_ids: str, payload: bytes = b"payload") -> list[Submitted]:
    return [Submitted(item_id, payload) for item_id in item_ids]


def done(position: int, *, failed: bool = False, content: bytes = b"") -> Outcome:
    """Of an item whose id is its position."""
    return Outcome(position, str(position), failed, content or b"outcome of %d" % position)


async def told(journal: Journal, after_sequence: int = 0) -> Sequence[tuple[int, int]]:
    """Sequence and position of all outcomes that follow."""
    return [(outcome.sequence, outcome.position) for outcome in await journal.outcomes(after_sequence, *PAGE)]
