"""One contract for both journals: what is added, taken, finished and told."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moorage.batches.items import Added, BatchState, Counts
from moorage.batches.journal import Journal
from tests.unit.batches.journals import KINDS, PAGE, done, journal_of, some, told

Trial = Callable[[Journal], Awaitable[None]]

pytestmark = pytest.mark.parametrize("kind", KINDS)


def try_on(kind: str, folder: Path, trial: Trial, *, ordered: bool = False) -> None:
    async def run() -> None:
        async with journal_of(kind, folder, ordered=ordered) as journal:
            await trial(journal)

    asyncio.run(run())


def test_items_are_taken_in_order_and_have_numbers_for_ids_where_they_have_none(kind: str, tmp_path: Path) -> None:
    async def trial(journal: Journal) -> None:
        assert await journal.add(some("a", "", "c")) == Added(3, 0)
        taken = await journal.take(-1, *PAGE)
        assert [(item.position, item.item_id, item.payload) for item in taken] == [
            (0, "a", b"payload"),
            (1, "1", b"payload"),
            (2, "c", b"payload"),
        ]
        assert [item.position for item in await journal.take(0, *PAGE)] == [1, 2]
        assert journal.counts == Counts(received=3)

    try_on(kind, tmp_path, trial)


def test_an_id_that_is_there_is_counted_and_else_ignored(kind: str, tmp_path: Path) -> None:
    async def trial(journal: Journal) -> None:
        await journal.add(some("a", "b"))
        assert await journal.add(some("b", "c", "c", payload=b"other")) == Added(1, 2)
        taken = await journal.take(-1, *PAGE)
        assert [(item.item_id, item.payload) for item in taken] == [
            ("a", b"payload"),
            ("b", b"payload"),
            ("c", b"other"),
        ]
        assert await journal.known(some("a", "c", "d")) == 2

    try_on(kind, tmp_path, trial)


def test_a_page_has_at_least_one_and_no_more_than_asked_for(kind: str, tmp_path: Path) -> None:
    async def trial(journal: Journal) -> None:
        await journal.add(some(*map(str, range(10)), payload=b"x" * 100))
        await journal.finish([done(position, content=b"y" * 100) for position in range(5)])
        assert [item.position for item in await journal.take(-1, 3, 10**9)] == [5, 6, 7]
        assert [item.position for item in await journal.take(-1, 9, 250)] == [5, 6]
        assert [item.position for item in await journal.take(-1, 9, 1)] == [5]
        assert [outcome.sequence for outcome in await journal.outcomes(0, 3, 10**9)] == [1, 2, 3]
        assert [outcome.sequence for outcome in await journal.outcomes(2, 9, 250)] == [3, 4]
        assert [outcome.sequence for outcome in await journal.outcomes(4, 9, 1)] == [5]
        assert await journal.outcomes(5, 9, 10**9) == ()

    try_on(kind, tmp_path, trial)


def test_outcomes_have_numbers_in_the_order_of_their_coming(kind: str, tmp_path: Path) -> None:
    async def trial(journal: Journal) -> None:
        await journal.add(some("0", "1", "2"))
        await journal.finish([done(2), done(0, failed=True)])
        assert await told(journal) == [(1, 2), (2, 0)]
        await journal.finish([done(1)])
        assert await told(journal, 2) == [(3, 1)]
        assert journal.counts == Counts(received=3, succeeded=2, failed=1)
        assert journal.last_sequence == 3
        outcomes = await journal.outcomes(0, *PAGE)
        assert [outcome.failed for outcome in outcomes] == [False, True, False]
        assert outcomes[1].content == b"outcome of 0"

    try_on(kind, tmp_path, trial)


def test_in_order_none_is_told_before_those_before_it(kind: str, tmp_path: Path) -> None:
    async def trial(journal: Journal) -> None:
        await journal.add(some("0", "1", "2", "3"))
        await journal.finish([done(2), done(1)])
        assert await told(journal) == []
        assert journal.counts.finished == 2
        await journal.finish([done(0)])
        assert await told(journal) == [(1, 0), (2, 1), (3, 2)]
        await journal.finish([done(3)])
        assert await told(journal, 3) == [(4, 3)]

    try_on(kind, tmp_path, trial, ordered=True)


def test_the_first_outcome_stays(kind: str, tmp_path: Path) -> None:
    async def trial(journal: Journal) -> None:
        await journal.add(some("0", "1"))
        await journal.finish([done(0, content=b"first"), done(0, content=b"again")])
        await journal.finish([done(0, failed=True, content=b"late")])
        (only,) = await journal.outcomes(0, *PAGE)
        assert only.content == b"first"
        assert journal.counts == Counts(received=2, succeeded=1)
        assert [item.position for item in await journal.take(-1, *PAGE)] == [1]

    try_on(kind, tmp_path, trial)


@pytest.mark.parametrize("ordered", [False, True])
def test_at_the_end_the_rest_is_cancelled_and_what_is_behind_gaps_told(
    kind: str, tmp_path: Path, ordered: bool
) -> None:
    async def trial(journal: Journal) -> None:
        await journal.add(some("0", "1", "2", "3"))
        await journal.finish([done(3), done(1)])
        journal.take_no_more()
        await journal.end(BatchState.CANCELLED, 10.0, 20.0)
        assert sorted(await told(journal)) == ([(1, 1), (2, 3)] if ordered else [(1, 3), (2, 1)])
        assert journal.counts == Counts(received=4, succeeded=2, cancelled=2)
        assert journal.counts.open == 0
        assert journal.complete

    try_on(kind, tmp_path, trial, ordered=ordered)


def test_bytes_are_counted_while_they_are_kept(kind: str, tmp_path: Path) -> None:
    async def trial(journal: Journal) -> None:
        assert journal.stored_bytes == 0
        await journal.add(some("0", payload=b"x" * 1000))
        before = journal.stored_bytes
        await journal.finish([done(0, content=b"y" * 3000)])
        assert before >= 1000
        assert journal.stored_bytes - before == 2000

    try_on(kind, tmp_path, trial)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), ordered=st.booleans())
def test_whatever_comes_when_each_item_has_one_outcome_and_numbers_have_no_gap(
    kind: str, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, ordered: bool
) -> None:
    count = data.draw(st.integers(1, 30))
    order = data.draw(st.permutations(range(count)))
    cuts = sorted(data.draw(st.lists(st.integers(0, count), max_size=5)))

    async def trial(journal: Journal) -> None:
        await journal.add(some(*map(str, range(count))))
        read: list[tuple[int, int]] = []
        for begin, end in zip([0, *cuts], [*cuts, count], strict=True):
            again = data.draw(st.integers(0, begin))
            await journal.finish([done(position) for position in order[again:end]])
            read += await told(journal, len(read))
        assert [sequence for sequence, _ in read] == list(range(1, count + 1))
        assert [position for _, position in read] == (list(range(count)) if ordered else order)

    try_on(kind, tmp_path_factory.mktemp("journal"), trial, ordered=ordered)
