"""The line against the simplest account of it: a list that is sorted."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from moorage.scheduling.line import Line

names = st.sampled_from("abcdefgh")
Turn = tuple[float, int, str]
places = st.sampled_from([0.0, 1.0, 2.0, 2.0, 3.0])


class LineMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.line: Line[str] = Line()
        self.waiting: list[Turn] = []
        self.taken: list[tuple[Turn, Turn]] = []
        self.turns = 0

    def turn_of(self, name: str) -> Turn | None:
        return next((turn for turn in self.waiting if turn[2] == name), None)

    @rule(name=names, place=places)
    def put(self, name: str, place: float) -> None:
        self.line.put(name, place)
        before = self.turn_of(name)
        if before is not None and before[0] == place:
            return
        if before is not None:
            self.waiting.remove(before)
        self.turns += 1
        self.waiting.append((place, self.turns, name))

    @rule(name=names)
    def drop(self, name: str) -> None:
        self.line.drop(name)
        self.waiting = [turn for turn in self.waiting if turn[2] != name]

    @rule(count=st.integers(1, 200))
    def move_to_and_fro(self, count: int) -> None:
        """So often that entries which were overtaken are cleared away."""
        for number in range(count):
            self.put("a", float(number % 2))

    @precondition(lambda self: self.waiting)
    @rule()
    def take(self) -> None:
        first = min(self.waiting)
        self.waiting.remove(first)
        taken = self.line.take()
        assert (taken[0], taken[2]) == (first[0], first[2])
        self.taken.append((first, taken))

    @rule()
    def put_back_who_was_taken(self) -> None:
        """Each goes to the turn that they had, unless they joined anew."""
        for turn, taken in self.taken:
            self.line.put_back(taken)
            if self.turn_of(turn[2]) is None:
                self.waiting.append(turn)
        self.taken = []

    @invariant()
    def agrees(self) -> None:
        in_order = sorted(self.waiting)
        assert list(self.line) == [name for _, _, name in in_order]
        assert len(self.line) == len(in_order)
        assert self.line.first == (in_order[0][2] if in_order else None)
        assert self.line.first_place == (in_order[0][0] if in_order else None)
        for place, _, name in in_order:
            assert name in self.line
            assert self.line.place_of(name) == place

    @invariant()
    def nobody_else_is_there(self) -> None:
        for name in set("abcdefgh") - {name for _, _, name in self.waiting}:
            assert name not in self.line
            with pytest.raises(KeyError):
                self.line.place_of(name)


def test_line() -> None:
    run_state_machine_as_test(LineMachine, settings=settings(max_examples=200, deadline=None))


def test_an_empty_line_gives_nobody() -> None:
    with pytest.raises(IndexError, match="nobody waits"):
        Line[str]().take()
