"""The window of a batch in memory."""

import asyncio

import pytest

from moorage.batches.items import BatchState
from moorage.batches.memory import MemoryJournal
from tests.unit.batches.journals import PAGE, done, some, told


async def still_waits(task: "asyncio.Task[object]") -> bool:
    for _ in range(5):
        await asyncio.sleep(0)
    return not task.done()


@pytest.mark.parametrize(("window_items", "window_bytes"), [(2, 10**9), (100, 1)])
def test_adding_waits_while_nobody_reads(window_items: int, window_bytes: int) -> None:
    async def trial() -> None:
        journal = MemoryJournal(window_items, window_bytes, ordered=False)
        adding = asyncio.create_task(journal.add(some("0", "1", "2")))
        assert await still_waits(adding)
        received = journal.counts.received
        assert received == min(window_items, 2 if window_bytes > 1 else 1)
        assert journal.room == window_items - received
        await journal.finish([done(0)])
        assert await still_waits(adding)
        journal.told(1)
        assert await still_waits(adding) == (window_bytes == 1)
        assert journal.counts.received == received + 1
        adding.cancel()

    asyncio.run(trial())


def test_of_what_was_told_a_window_is_kept_for_who_comes_back() -> None:
    async def trial() -> None:
        journal = MemoryJournal(3, 10**9, ordered=False)
        for position in range(10):
            await journal.add(some(str(position)))
            await journal.finish([done(position)])
            journal.told(position + 1)
        assert journal.first_sequence == 8
        assert await told(journal) == [(8, 7), (9, 8), (10, 9)]
        assert await journal.known(some("6", "7", "9")) == 2
        assert journal.stored_bytes < 3 * 1000

    asyncio.run(trial())


def test_a_slower_reader_holds_nothing_back() -> None:
    async def trial() -> None:
        journal = MemoryJournal(10, 10**9, ordered=False)
        await journal.add(some(*map(str, range(10))))
        await journal.finish([done(position) for position in range(10)])
        journal.told(10)
        journal.told(4)
        assert journal.room == 10

    asyncio.run(trial())


def test_whoever_waits_for_room_is_let_go_when_the_batch_ends() -> None:
    async def trial() -> None:
        journal = MemoryJournal(1, 10**9, ordered=False)
        adding = asyncio.create_task(journal.add(some("0", "1")))
        assert await still_waits(adding)
        journal.take_no_more()
        assert (await adding).new == 1
        await journal.end(BatchState.CANCELLED, 1.0, 2.0)
        assert (await journal.take(-1, *PAGE)) == []
        assert journal.counts.cancelled == 1

    asyncio.run(trial())
