"""The journal of a batch that is not durable: bounded, and gone with the server."""

import asyncio
from collections import deque
from collections.abc import Sequence
from itertools import islice

from moorage.batches.items import Added, BatchState, Counts, Item, Outcome, Submitted

# What an item or outcome takes beside its bytes.
_ENTRY_BYTES = 512


class MemoryJournal:
    """Holds at most a window of items and outcomes that no reader has taken, and as many outcomes that one has.

    While the window is full `add` waits, so that whoever reads nothing sends nothing.
    """

    def __init__(self, window_items: int, window_bytes: int, *, ordered: bool) -> None:
        self.counts = Counts()
        self.complete = self._has_ended = False
        self._window_items = window_items
        self._window_bytes = window_bytes
        self._ordered = ordered
        self._open: dict[int, Item] = {}
        self._early: dict[int, Outcome] = {}
        self._outcomes: deque[Outcome] = deque()
        self._ids: set[str] = set()
        self._told = self._numbered = 0
        self._window_used_bytes = self._past_bytes = 0
        self._has_room = asyncio.Event()
        self._has_room.set()

    @property
    def first_sequence(self) -> int:
        return self._outcomes[0].sequence if self._outcomes else self._numbered + 1

    @property
    def last_sequence(self) -> int:
        return self._numbered

    @property
    def room(self) -> int:
        return max(0, self._window_items - self.counts.received + self._told)

    @property
    def stored_bytes(self) -> int:
        return self._window_used_bytes + self._past_bytes

    async def add(self, items: Sequence[Submitted]) -> Added:
        new = 0
        for item in items:
            while self._is_full and not self._has_ended:
                self._has_room.clear()
                await self._has_room.wait()
            if self._has_ended:
                return Added(new, 0)
            new += self._add(item)
        return Added(new, len(items) - new)

    @property
    def _is_full(self) -> bool:
        untold = self.counts.received - self._told
        return untold > 0 and (untold >= self._window_items or self._window_used_bytes >= self._window_bytes)

    def _add(self, item: Submitted) -> bool:
        position = self.counts.received
        item_id = item.item_id or str(position)
        if item_id in self._ids:
            return False
        self._ids.add(item_id)
        self._open[position] = Item(position, item_id, item.payload)
        self._window_used_bytes += len(item.payload) + _ENTRY_BYTES
        self.counts.received += 1
        return True

    async def known(self, items: Sequence[Submitted]) -> int:
        return sum(item.item_id in self._ids for item in items)

    async def take(self, after_position: int, most_items: int, most_bytes: int) -> Sequence[Item]:
        taken: list[Item] = []
        for position in range(after_position + 1, self.counts.received):
            if position not in self._open:
                continue
            item = self._open[position]
            most_bytes -= len(item.payload)
            if taken and (len(taken) >= most_items or most_bytes < 0):
                break
            taken.append(item)
        return taken

    async def finish(self, outcomes: Sequence[Outcome]) -> None:
        for outcome in outcomes:
            item = self._open.pop(outcome.position, None)
            if item is None:
                continue
            self._window_used_bytes += len(outcome.content) - len(item.payload)
            self.counts.succeeded += not outcome.failed
            self.counts.failed += outcome.failed
            if self._ordered:
                self._early[outcome.position] = outcome
            else:
                self._number(outcome)
        while self._ordered and self._numbered in self._early:
            self._number(self._early.pop(self._numbered))

    def _number(self, outcome: Outcome) -> None:
        self._numbered += 1
        self._outcomes.append(outcome._replace(sequence=self._numbered))

    async def outcomes(self, after_sequence: int, most_items: int, most_bytes: int) -> Sequence[Outcome]:
        if not self._outcomes or after_sequence >= self._numbered:
            return ()
        begin = max(0, after_sequence + 1 - self._outcomes[0].sequence)
        found: list[Outcome] = []
        for outcome in islice(self._outcomes, begin, begin + most_items):
            most_bytes -= len(outcome.content)
            if found and most_bytes < 0:
                break
            found.append(outcome)
        return found

    def told(self, sequence: int) -> None:
        for outcome in islice(self._outcomes, max(0, self._told + 1 - self.first_sequence), None):
            if outcome.sequence > sequence:
                break
            size_bytes = len(outcome.content) + _ENTRY_BYTES
            self._told = outcome.sequence
            self._window_used_bytes -= size_bytes
            self._past_bytes += size_bytes
        self._forget_what_is_long_told()
        if not self._is_full:
            self._has_room.set()

    def _forget_what_is_long_told(self) -> None:
        while self._outcomes and self._outcomes[0].sequence <= self._told:
            past = self._told - self._outcomes[0].sequence + 1
            if past <= self._window_items and self._past_bytes <= self._window_bytes:
                return
            oldest = self._outcomes.popleft()
            self._past_bytes -= len(oldest.content) + _ENTRY_BYTES
            self._ids.discard(oldest.item_id)

    async def close_to_items(self) -> None:
        self.complete = True

    def take_no_more(self) -> None:
        self._has_ended = True
        self._has_room.set()

    async def end(self, state: BatchState, ended_at_s: float, expires_at_s: float) -> None:
        del state, ended_at_s, expires_at_s  # its batch knows, and nobody else asks
        self.complete = True
        for item in self._open.values():
            self._window_used_bytes -= len(item.payload) + _ENTRY_BYTES
        self.counts.cancelled += len(self._open)
        self._open.clear()
        for position in sorted(self._early):  # the gaps before them stay
            self._number(self._early.pop(position))
