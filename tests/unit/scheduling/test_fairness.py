"""Models of one priority share a device's seconds by their weights."""

import heapq
import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.domain.model import ModelKey, SharePolicy
from moorage.scheduling import actions
from moorage.scheduling.fairness import next_due_s
from moorage.scheduling.state import DeviceLimits
from tests.support.core import Core
from tests.support.scheduling import make_spec


@pytest.mark.parametrize(
    ("due_s", "since_s", "times", "due"),
    [
        (-math.inf, 10.0, 2.0, 16.0),
        (8.0, 0.0, 2.0, 14.0),
        (8.0, 9.0, 2.0, 15.0),
        (8.0, -math.inf, 0.5, 11.0),
        (12.0, 0.0, 2.0, 16.0),
        (1.0, 0.0, 2.0, 11.0),
        (-math.inf, 10.0, 99.0, 18.0),
    ],
)
def test_when_the_next_turn_is_due(due_s: float, since_s: float, times: float, due: float) -> None:
    """A run from 10 to 13; nobody is ahead or behind by more than 5."""
    assert next_due_s(10.0, 13.0, due_s, since_s, times, 5.0) == due


@dataclass(frozen=True)
class Load:
    """Callers in closed loops: each asks again so long after its answer. run_s, row_s: of a run, and of each row."""

    run_s: float
    row_s: float = 0.0
    callers: int = 3
    back_s: float = 0.0
    weight: float = 1.0
    most_rows: int = 1
    instances: int = 1


class Closed:
    """Models on one device, and their callers."""

    def __init__(self, loads: Mapping[str, Load], slots: int = 1) -> None:
        self.core = Core.on(DeviceLimits(100, run_slots=slots))
        self.loads = loads
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._agenda: list[tuple[float, int, str, int]] = []
        self._asked = 0
        for name, load in loads.items():
            rows, instances = load.most_rows, load.instances
            self.core.resident(make_spec(name, weights=1, max_batch_size=rows, instances=instances, weight=load.weight))

    def begin(self, name: str) -> None:
        for _ in range(self.loads[name].callers):
            self._at(self.core.now, name)

    def _at(self, when_s: float, name: str, run_id: int = 0) -> None:
        self._asked += 1
        heapq.heappush(self._agenda, (when_s, self._asked, name, run_id))

    def until(self, end_s: float) -> dict[str, float]:
        """Let it run; each model's part of all the seconds used so far."""
        while self._wake_s <= end_s:
            if self._agenda and self._agenda[0][0] <= self._wake_s:
                self.core.now, number, name, run_id = heapq.heappop(self._agenda)
                if run_id:
                    self.core.finish(run_id)
                else:
                    self.core.ask(number, ModelKey(name, 1))
            else:
                self.core.wait_until(self._wake_s)
            self._follow()
        return {name: seconds / sum(self.seconds.values()) for name, seconds in self.seconds.items()}

    @property
    def _wake_s(self) -> float:
        timer_s = self.core.scheduler.next_wake_s
        return min(self._agenda[0][0] if self._agenda else math.inf, math.inf if timer_s is None else timer_s)

    def _follow(self) -> None:
        for action in self.core.decided:
            match action:
                case actions.Execute(run):
                    load = self.loads[run.key.name]
                    took_s = load.run_s + load.row_s * run.rows
                    self.seconds[run.key.name] += took_s
                    self._at(self.core.now + took_s, run.key.name, run.run_id)
                case actions.Succeed(run):
                    for _ in run.entries:
                        self._at(self.core.now + self.loads[run.key.name].back_s, run.key.name)
                case _:
                    pass


def shares(loads: Mapping[str, Load], slots: int = 1, *, seconds: float = 4.0) -> dict[str, float]:
    world = Closed(loads, slots)
    for name in loads:
        world.begin(name)
    return world.until(seconds)


@pytest.mark.parametrize(
    ("loads", "slots"),
    [
        ({"a": Load(0.02, callers=64), "b": Load(0.002)}, 1),
        ({"a": Load(0.02, weight=1.0), "b": Load(0.002, weight=3.0)}, 1),
        ({"a": Load(0.02, weight=3.0), "b": Load(0.002, weight=1.0)}, 1),
        ({"a": Load(0.02), "b": Load(0.01), "c": Load(0.003)}, 1),
        ({"a": Load(0.02), "b": Load(0.01, weight=2.0), "c": Load(0.003, weight=4.0)}, 1),
        ({"a": Load(0.02), "b": Load(0.01), "c": Load(0.003)}, 2),
        ({"a": Load(0.02, callers=8, instances=2), "b": Load(0.01, callers=8, instances=2)}, 2),
        ({"a": Load(0.02, callers=8, instances=2), "b": Load(0.01)}, 2),
        ({"a": Load(0.02, callers=8, instances=2), "b": Load(0.01), "c": Load(0.003)}, 2),
        ({"a": Load(0.02, callers=8, instances=3, weight=2.0), "b": Load(0.01, callers=8, instances=3)}, 3),
    ],
)
def test_shares_follow_the_weights(loads: dict[str, Load], slots: int) -> None:
    parts = shares(loads, slots)
    of_all = sum(load.weight for load in loads.values())
    for name, load in loads.items():
        assert parts[name] == pytest.approx(load.weight / of_all, rel=0.05)


@settings(max_examples=12, deadline=None)
@given(st.lists(st.builds(Load, run_s=st.floats(0.005, 0.05), weight=st.floats(0.25, 4.0)), min_size=2, max_size=5))
def test_any_models_of_any_weights_have_their_share(loads: list[Load]) -> None:
    named = {f"m{number}": load for number, load in enumerate(loads)}
    parts = shares(named)
    of_all = sum(load.weight for load in loads)
    for name, load in named.items():
        # In four seconds a small share is a few runs: one more or less is no matter of fairness.
        assert parts[name] == pytest.approx(load.weight / of_all, rel=0.1, abs=load.run_s / 4)


@pytest.mark.parametrize("callers", [1, 2, 4])
def test_a_flood_leaves_the_device_to_few_callers_who_are_right_back(callers: int) -> None:
    """They have nothing waiting at the moment when their turn comes."""
    flood = Load(0.01, 0.001, callers=64, back_s=0.001, most_rows=32)
    few = Load(0.01, 0.001, callers=callers, back_s=0.001, most_rows=32)
    parts = shares({"flood": flood, "few": few}, seconds=10.0)
    assert parts["few"] == pytest.approx(0.5, rel=0.1)


def test_it_is_not_kept_idle_for_callers_who_take_their_time() -> None:
    flood = Load(0.01, 0.001, callers=64, back_s=0.001, most_rows=32)
    rare = Load(0.01, 0.001, callers=2, back_s=0.5, most_rows=32)
    world = Closed({"flood": flood, "rare": rare})
    world.begin("flood")
    world.begin("rare")
    world.until(10.0)
    assert sum(world.seconds.values()) > 9.7


def test_a_model_alone_has_it_all_and_owes_nothing_when_another_comes() -> None:
    world = Closed({"a": Load(0.02), "b": Load(0.02)})
    world.begin("a")
    world.until(5.0)
    before_s = world.seconds["a"]
    assert before_s == pytest.approx(5.0, abs=0.05)
    world.begin("b")
    world.until(6.0)
    assert world.seconds["a"] - before_s == pytest.approx(0.5, abs=0.05)


def test_higher_priority_goes_first_whatever_is_due() -> None:
    core = Core.on(DeviceLimits(100, run_slots=1))
    low = core.resident(make_spec("low", weights=1, max_batch_size=1))
    high = core.resident(make_spec("high", weights=1, max_batch_size=1, share=SharePolicy(priority=2)))
    peer = core.resident(make_spec("peer", weights=1, max_batch_size=1, share=SharePolicy(priority=2)))
    for number in (1, 2, 3):
        core.ask(number, high)
    core.ask(4, peer)
    core.ask(5, low)
    core.now += 3.0
    assert core.finish(1) == ["succeed 1", "execute 4"]
    core.now += 0.1
    assert core.finish(2) == ["succeed 4", "execute 2"]
