"""The journal of a durable batch: rows of the store."""

import sqlite3
from collections.abc import Sequence

from moorage.batches.items import Added, BatchState, Counts, Item, Outcome, Submitted
from moorage.batches.statements import statements
from moorage.batches.store import Store

_ROOM_ITEMS = 4096


class DurableJournal:
    """What is in the store is counted here, too, so that nobody has to ask for it."""

    complete: bool

    def __init__(self, store: Store, row: sqlite3.Row, early: Sequence[int], *, ordered: bool) -> None:
        """row: of the table of batches. early: positions that have an outcome which is not numbered yet."""
        self._store = store
        self._ordered = ordered
        self._batch = int(row["number"])
        self._early = set(early)
        self._numbered = int(row["numbered"])
        self._stored_bytes = int(row["stored_bytes"])
        self.complete = bool(row["complete"])
        self.counts = Counts(row["received"], row["succeeded"], row["failed"], row["cancelled"])

    @property
    def first_sequence(self) -> int:
        return 1

    @property
    def last_sequence(self) -> int:
        return self._numbered

    @property
    def room(self) -> int:
        return _ROOM_ITEMS

    @property
    def stored_bytes(self) -> int:
        return self._stored_bytes

    async def add(self, items: Sequence[Submitted]) -> Added:
        # Only a batch's one reader adds, one call at a time: positions are taken from what was counted before.
        begin = self.counts.received

        def work(connection: sqlite3.Connection) -> tuple[int, int]:
            new = new_bytes = 0
            for item in items:
                position = begin + new
                values = (self._batch, position, item.item_id or str(position), item.payload)
                if connection.execute(statements()["add"], values).rowcount:
                    new += 1
                    new_bytes += len(item.payload)
            received = {"batch": self._batch, "items": new, "bytes": new_bytes}
            connection.execute(statements()["received"], received)
            return new, new_bytes

        new, new_bytes = await self._store.do(work)
        self.counts.received += new
        self._stored_bytes += new_bytes
        return Added(new, len(items) - new)

    async def known(self, items: Sequence[Submitted]) -> int:
        values = [{"batch": self._batch, "item_id": item.item_id} for item in items]

        def work(connection: sqlite3.Connection) -> int:
            found = (connection.execute(statements()["known"], value).fetchone() for value in values)
            return sum(row is not None for row in found)

        return await self._store.do(work)

    async def take(self, after_position: int, most_items: int, most_bytes: int) -> Sequence[Item]:
        values = {"batch": self._batch, "after_position": after_position, "limit": most_items}

        def work(connection: sqlite3.Connection) -> list[Item]:
            taken: list[Item] = []
            left_bytes = most_bytes
            for row in connection.execute(statements()["take"], values):
                left_bytes -= len(row["payload"])
                if taken and left_bytes < 0:
                    break
                taken.append(Item(row["position"], row["item_id"], row["payload"]))
            return taken

        return await self._store.do(work)

    async def finish(self, outcomes: Sequence[Outcome]) -> None:
        def work(connection: sqlite3.Connection) -> "_Finishing":
            finishing = _Finishing(connection, self._batch, self._numbered, set(self._early), ordered=self._ordered)
            for outcome in outcomes:
                finishing.finish(outcome)
            finishing.keep()
            return finishing

        done = await self._store.do(work)
        self._numbered, self._early = done.numbered, done.early
        self._stored_bytes += done.added_bytes
        self.counts.succeeded += done.succeeded
        self.counts.failed += done.failed

    async def outcomes(self, after_sequence: int, most_items: int, most_bytes: int) -> Sequence[Outcome]:
        if after_sequence >= self._numbered:
            return ()
        return await self._store.do(
            lambda connection: read_outcomes(connection, self._batch, after_sequence, most_items, most_bytes)
        )

    def told(self, sequence: int) -> None:
        """Nothing goes before the batch does."""

    async def close_to_items(self) -> None:
        await self._store.do(lambda connection: connection.execute(statements()["complete"], {"batch": self._batch}))
        self.complete = True

    def take_no_more(self) -> None:
        """Nobody waits for room in the store."""

    async def end(self, state: BatchState, ended_at_s: float, expires_at_s: float) -> None:
        def work(connection: sqlite3.Connection) -> int:
            numbered = self._numbered
            for position in sorted(self._early):  # the gaps before them stay
                numbered += 1
                values = {"batch": self._batch, "position": position, "sequence": numbered}
                connection.execute(statements()["number"], values)
            ending = {
                "batch": self._batch,
                "state": state.value,
                "ended_at_s": ended_at_s,
                "expires_at_s": expires_at_s,
                "numbered": numbered,
            }
            connection.execute(statements()["end"], ending)
            return numbered

        self._numbered = await self._store.do(work)
        self._early.clear()
        self.complete = True
        self.counts.cancelled = self.counts.open


class _Finishing:
    """One transaction's outcomes: written, and numbered as far as that can be."""

    def __init__(
        self, connection: sqlite3.Connection, batch: int, numbered: int, early: set[int], *, ordered: bool
    ) -> None:
        self._connection = connection
        self._batch = batch
        self._ordered = ordered
        self.numbered = numbered
        self.early = early
        self.added_bytes = self.succeeded = self.failed = 0

    def finish(self, outcome: Outcome) -> None:
        where = {"batch": self._batch, "position": outcome.position}
        row = self._connection.execute(statements()["payload_bytes"], where).fetchone()
        if row is None:
            return  # it has an outcome
        sequence = None
        if self._ordered:
            self.early.add(outcome.position)
        else:
            self.numbered += 1
            sequence = self.numbered
        values = where | {"failed": int(outcome.failed), "content": outcome.content, "sequence": sequence}
        self._connection.execute(statements()["finish"], values)
        self.added_bytes += len(outcome.content) - row[0]
        self.succeeded += not outcome.failed
        self.failed += outcome.failed

    def keep(self) -> None:
        """Number what has no gap before it any more, and count."""
        while self._ordered and self.numbered in self.early:
            self.early.discard(self.numbered)
            values = {"batch": self._batch, "position": self.numbered, "sequence": self.numbered + 1}
            self._connection.execute(statements()["number"], values)
            self.numbered += 1
        finished = {
            "batch": self._batch,
            "succeeded": self.succeeded,
            "failed": self.failed,
            "numbered": self.numbered,
            "bytes": self.added_bytes,
        }
        self._connection.execute(statements()["finished"], finished)


def read_outcomes(
    connection: sqlite3.Connection, batch: int, after_sequence: int, most_items: int, most_bytes: int
) -> list[Outcome]:
    """As Journal.outcomes has them."""
    values = {"batch": batch, "after_sequence": after_sequence, "limit": most_items}
    found: list[Outcome] = []
    for row in connection.execute(statements()["outcomes"], values):
        most_bytes -= len(row["content"])
        if found and most_bytes < 0:
            break
        found.append(Outcome(row["position"], row["item_id"], bool(row["outcome"]), row["content"], row["sequence"]))
    return found
