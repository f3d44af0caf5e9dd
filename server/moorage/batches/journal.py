"""Where a batch's items wait, and what became of them is kept."""

from collections.abc import Sequence
from typing import Protocol

from moorage.batches.items import Added, BatchState, Counts, Item, Outcome, Submitted


class Journal(Protocol):
    """Of one batch. Calls return when what they say is kept; StoreRefused: it is not, none of it."""

    counts: Counts
    """As the journal has them. Only it writes there."""

    @property
    def complete(self) -> bool:
        """Whether all items have been received."""
        ...

    @property
    def first_sequence(self) -> int:
        """Of the first outcome that can still be had."""
        ...

    @property
    def last_sequence(self) -> int:
        """Of the last outcome, those before it being there, too; 0 before the first."""
        ...

    @property
    def room(self) -> int:
        """Items that `add` takes without waiting for anybody to read."""
        ...

    @property
    def stored_bytes(self) -> int:
        """Of items and outcomes that are kept."""
        ...

    async def add(self, items: Sequence[Submitted]) -> Added:
        """Keep new items; those whose id is there already are counted, and else ignored.

        Waits while there is no room. Cancellation: all are kept, or none.
        """
        ...

    async def known(self, items: Sequence[Submitted]) -> int:
        """How many of these have the id of one that is there."""
        ...

    async def take(self, after_position: int, most_items: int, most_bytes: int) -> Sequence[Item]:
        """Items without an outcome whose position is higher, in order; at least one where there is one."""
        ...

    async def finish(self, outcomes: Sequence[Outcome]) -> None:
        """Keep outcomes, numbered as the batch has them told. An item that has one keeps the first."""
        ...

    async def outcomes(self, after_sequence: int, most_items: int, most_bytes: int) -> Sequence[Outcome]:
        """Those that follow, without a gap; at least one where there is one."""
        ...

    def told(self, sequence: int) -> None:
        """A reader has taken all up to here: what need not last may go."""
        ...

    async def close_to_items(self) -> None:
        """There will be no more items."""
        ...

    def take_no_more(self) -> None:
        """Have `add` not wait for room any more: the batch ends."""
        ...

    async def end(self, state: BatchState, ended_at_s: float, expires_at_s: float) -> None:
        """The batch has ended; what has no outcome is counted as cancelled. Seconds since 1970."""
        ...
