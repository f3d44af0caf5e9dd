"""What one caller reads of a batch: outcomes from a number on, and what happens meanwhile."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from moorage.batches.items import ItemState, Outcome
from moorage.batches.journal import Journal

_PAGE_ITEMS = 256
_PAGE_BYTES = 1024 * 1024
# Of states of items that a slow reader has not taken; older ones are dropped.
_MOST_STATES = 1024


class Reader:
    """Its pace is its own: a slow one holds up nobody, but for whoever sends items to a batch that is not durable."""

    def __init__(self, journal: Journal, has_ended: Callable[[], bool], after_sequence: int) -> None:
        """has_ended: whether there will be no more outcomes."""
        self.sequence = after_sequence
        self._journal = journal
        self._has_ended = has_ended
        self._news = asyncio.Event()
        self._states: deque[tuple[str, ItemState]] = deque(maxlen=_MOST_STATES)
        self._failure: Exception | None = None

    def wake(self) -> None:
        """There may be something to read."""
        self._news.set()

    def add_state(self, item_id: str, state: ItemState) -> None:
        self._states.append((item_id, state))
        self._news.set()

    def end_with(self, failure: Exception) -> None:
        """Nothing more will happen here, and why."""
        self._failure = failure
        self._news.set()

    async def outcomes(self) -> Sequence[Outcome]:
        """Those that follow, as many as a message may hold; none where there are none yet. See took."""
        return await self._journal.outcomes(self.sequence, _PAGE_ITEMS, _PAGE_BYTES)

    def took(self, outcomes: Sequence[Outcome]) -> None:
        """These are on their way to whoever reads."""
        if outcomes:
            self.sequence = outcomes[-1].sequence
            self._journal.told(self.sequence)

    def states(self) -> Sequence[tuple[str, ItemState]]:
        """What items have begun to do since this was asked last."""
        states = tuple(self._states)
        self._states.clear()
        return states

    @property
    def has_more(self) -> bool:
        """Whether there is an outcome that was not read."""
        return self.sequence < self._journal.last_sequence

    @property
    def is_at_end(self) -> bool:
        """Whether all was read, and nothing will follow."""
        return self._has_ended() and not self.has_more

    async def wait(self, limit_s: float) -> None:
        """Until something may have happened, or that long. Raises why nothing will any more."""
        if not self._news.is_set():
            handle = asyncio.get_running_loop().call_later(limit_s, self._news.set)
            try:
                await self._news.wait()
            finally:
                handle.cancel()
        self._news.clear()
        if self._failure is not None:
            raise self._failure
