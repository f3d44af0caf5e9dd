"""Callers who share runs: each gets exactly its own rows or its own error, whatever becomes of the others.

Others leave, are late, are poisoned, find no memory, or have more rows than a run may; and their worker may die.
"""

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import grpc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.integration.cases.conftest import SharedServer
from tests.integration.cases.mirror import HUNGRY, MOST_ROWS, POISON, check_own_rows, write_mirror
from tests.support.calls import Call, Calls, Failure, request_of, rows_of
from tests.support.toy_models import DEDICATED
from tests.support.worker_processes import kill, load_alone

# `make soak` asks for twenty times as many.
_TIMES = int(os.environ.get("TEST_EXAMPLES", "2000")) // 2000
_EXAMPLES = 11 * max(1, _TIMES)  # of each kind
_DEATHS = 2 * max(1, _TIMES)  # each takes two starts of a worker
_LONG_S = 30.0


@dataclass(frozen=True)
class Kind:
    """A model: how many rows its runs may have, and how many find memory."""

    most_rows: int
    fitting_rows: int

    @property
    def name(self) -> str:
        return f"mirror_{self.most_rows}_{self.fitting_rows}"


KINDS = (Kind(1, 1), Kind(3, 3), Kind(MOST_ROWS, MOST_ROWS), Kind(MOST_ROWS, 5), Kind(MOST_ROWS, 1))
MORTAL = Kind(MOST_ROWS, 6)


@dataclass(frozen=True)
class Wish:
    """One caller. marked: a value that its model fails for. gone_s: when it cancels. within_s: its deadline.

    pause_s: before the next one calls.
    """

    rows: int
    marked: float | None
    gone_s: float | None
    within_s: float
    pause_s: float

    def values(self, number: int) -> list[float]:
        values = [1000.0 * number + row for row in range(self.rows)]
        if self.marked is not None:
            values[number % self.rows] = self.marked
        return values

    def errors(self, kind: Kind) -> set[str]:
        """How it may end with that model, but for its own rows."""
        codes = {POISON: {"INTERNAL"}, HUNGRY: {"RESOURCE_EXHAUSTED"}}.get(self.marked or 0.0, set())
        if self.rows > kind.fitting_rows and self.marked is None:
            codes = {"RESOURCE_EXHAUSTED"}
        if self.rows > kind.most_rows:
            codes = {"INVALID_ARGUMENT"}
        late = {"DEADLINE_EXCEEDED"} if self.within_s < _LONG_S else set()
        return codes | late | ({"CANCELLED"} if self.gone_s is not None else set())

    def may_be_served(self, kind: Kind) -> bool:
        return self.marked is None and self.rows <= min(kind.fitting_rows, kind.most_rows)


def wishes(fewest: int) -> st.SearchStrategy[list[Wish]]:
    wish = st.builds(
        Wish,
        rows=st.integers(1, MOST_ROWS),
        marked=st.sampled_from([None] * 8 + [POISON, HUNGRY]),
        gone_s=st.sampled_from([None, None, None, 0.0, 0.005, 0.02, 0.04]),
        within_s=st.sampled_from([_LONG_S, _LONG_S, _LONG_S, 0.03, 0.005]),
        pause_s=st.sampled_from([0.0, 0.0, 0.001, 0.01]),
    )
    return st.lists(wish, min_size=fewest, max_size=24)


@pytest.fixture(scope="module", autouse=True)
def models(shared_server: SharedServer) -> Iterator[None]:
    for kind in KINDS:
        write_mirror(shared_server.models, kind.name, kind.most_rows, kind.fitting_rows)
    write_mirror(shared_server.models, MORTAL.name, MORTAL.most_rows, MORTAL.fitting_rows, DEDICATED)
    yield
    for kind in KINDS:
        shared_server.calls.unload(kind.name)


def _wish_all(calls: Calls, model: str, asked: Sequence[Wish], dying: int = 0, dies_after: int = -1) -> list[Any]:
    """Everybody's outcome. dying: a process that is killed as soon as wish number dies_after is under way."""
    began: list[Call] = []
    goes: list[tuple[float, Call]] = []
    for number, wish in enumerate(asked):
        call = calls.start(request_of(model, rows_of(*wish.values(number))), wish.within_s)
        began.append(call)
        if wish.gone_s is not None:
            goes.append((time.monotonic() + wish.gone_s, call))
        time.sleep(wish.pause_s)
        if number == dies_after:
            kill(dying)
    for at_s, call in sorted(goes, key=lambda item: item[0]):
        time.sleep(max(0.0, at_s - time.monotonic()))
        call.cancel()
    return [_outcome(call) for call in began]


def _outcome(call: Call) -> Any:
    """None where its own caller cancelled it."""
    try:
        return call.outcome()
    except grpc.FutureCancelledError:
        return None


def _check(kind: Kind, asked: Sequence[Wish], outcomes: Sequence[Any]) -> None:
    for number, (wish, outcome) in enumerate(zip(asked, outcomes, strict=True)):
        if outcome is None:
            assert wish.gone_s is not None
        elif isinstance(outcome, Failure):
            assert outcome.code in wish.errors(kind), f"{wish} got {outcome}"
            assert "secret" not in outcome.message
        else:
            assert wish.may_be_served(kind), f"{wish} was served"
            check_own_rows(outcome, wish.values(number), kind.most_rows)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@settings(max_examples=_EXAMPLES, deadline=None)
@given(asked=wishes(1))
def test_each_gets_its_own_rows_or_its_own_error(shared_server: SharedServer, asked: list[Wish], kind: Kind) -> None:
    calls = shared_server.calls
    calls.load(kind.name)
    _check(kind, asked, _wish_all(calls, kind.name, asked))
    if any(wish.marked == HUNGRY for wish in asked) or kind.fitting_rows < kind.most_rows:
        calls.unload(kind.name)  # or its runs stay small for as long as it is remembered that they found no memory


@settings(max_examples=_DEATHS, deadline=None)
@given(wishes(12), st.integers(2, 11))
def test_so_does_each_whose_worker_dies(shared_server: SharedServer, asked: list[Wish], dies_after: int) -> None:
    """Nobody is told of it: what was under way is computed again."""
    calls = shared_server.calls
    pid = load_alone(shared_server.server, calls, MORTAL.name)
    try:
        _check(MORTAL, asked, _wish_all(calls, MORTAL.name, asked, pid, dies_after))
    finally:
        calls.unload(MORTAL.name)  # its next worker is a new one, and not told to wait for having died before
