"""Whole simulations of the real scheduler."""

import json
from pathlib import Path
from typing import Any

import pytest

from moorage.domain.errors import DeadlineExceeded, QueueFull
from moorage.scheduling import actions, events
from moorage.scheduling.policy import POLICIES, policy_named
from moorage.scheduling.scheduler import Scheduler
from moorage.simulation.arrivals import Traffic
from moorage.simulation.errors import SimulationError
from moorage.simulation.fleet import assemble
from moorage.simulation.report import PolicyFigures
from moorage.simulation.scenario import Scenario
from moorage.simulation.simulate import run, simulate
from moorage.simulation.world import World
from tests.support.scenarios import SMALL, scenario

MOORAGE = policy_named("moorage")
ALONE = """
[[devices]]
name = "cpu"
capacity = "10 GB"
disk_per_s = "2 GB"
[[models]]
name = "m"
weights = "2 GB"
run_s = 0.5
[[arrivals]]
pattern = "trace"
file = "trace.csv"
deadline_s = {deadline_s}
"""


def recorded(folder: Path, *lines: str, deadline_s: float = 30.0) -> Scenario:
    (folder / "trace.csv").write_text("\n".join(["time_s,model,rows,priority", *lines, ""]))
    return scenario(ALONE.format(deadline_s=deadline_s), folder)


def figures(of: Scenario) -> PolicyFigures:
    return simulate(of, [MOORAGE]).policies[0]


def test_a_run_by_hand(tmp_path: Path) -> None:
    # The worker takes 2 s and the load 1 s; then two runs of 0.5 s, and one that finds everything ready.
    shown = figures(recorded(tmp_path, "0,m,1,", "0,m,1,", "10,m,1,"))
    assert [(it.priority, it.p50_s, it.p99_s) for it in shown.priorities] == [(3, 3.5, 4.0)]
    assert (shown.requests, shown.answered, shown.in_time, shown.runs) == (3, 3, 3, 3)
    assert (shown.loads.count, shown.loads.size_bytes, shown.returned.count) == (1, 2 * 10**9, 0)
    assert shown.seconds == 10.5
    assert shown.goodput_per_s == pytest.approx(3 / 10.5, abs=1e-6)
    assert shown.busy == pytest.approx(1.5 / 10.5, abs=1e-6)


def test_who_comes_too_early_for_the_load_expires(tmp_path: Path) -> None:
    shown = figures(recorded(tmp_path, "0,m,1,", "3,m,1,", deadline_s=1.0))
    assert shown.failures == {DeadlineExceeded.__name__: 1}
    assert (shown.answered, shown.in_time) == (1, 1)


def test_what_a_queue_does_not_take_is_counted(tmp_path: Path) -> None:
    full = recorded(tmp_path, *["0,m,1,"] * 300)
    assert figures(full).failures[QueueFull.__name__] >= 300 - 256 - 1


def test_every_request_has_one_outcome() -> None:
    for policy in simulate(scenario(), list(POLICIES.values())).policies:
        assert policy.requests == 400
        assert policy.answered + sum(policy.failures.values()) == policy.requests
        assert sum(it.answered for it in policy.priorities) == policy.answered
        assert policy.in_time <= policy.answered
        assert policy.answered > 300


def test_memory_moves_under_pressure() -> None:
    """Eight models that do not fit two devices: without evictions and restores most requests would fail."""
    (shown,) = simulate(scenario(), [MOORAGE]).policies
    assert shown.evictions.count > 5
    assert shown.restores.count > 5
    assert shown.returned.size_bytes >= shown.restores.size_bytes
    assert 0 < shown.memory_held < 1


def test_the_same_scenario_gives_the_same_report() -> None:
    policies = list(POLICIES.values())
    first, second = simulate(scenario(), policies), simulate(scenario(), policies)
    assert first.to_json() == second.to_json()
    other = simulate(scenario(SMALL.replace("seed = 5", "seed = 6")), policies)
    assert other.to_json() != first.to_json()


def test_a_report_is_plain_json() -> None:
    read: dict[str, Any] = json.loads(simulate(scenario(), [MOORAGE, policy_named("lru")]).to_json())
    assert (read["scenario"], read["seed"], read["devices"], read["models"]) == ("test", 5, 2, 9)
    assert [policy["policy"] for policy in read["policies"]] == ["moorage", "lru"]
    caches = read["policies"][0]["one_cache"]
    assert caches["fewest_bytes"] <= caches["belady_bytes"] <= caches["lru_bytes"]


def test_the_books_balance_at_the_end() -> None:
    simulated = scenario()
    world = run(simulated, assemble(simulated), MOORAGE)
    assert not world.tally.waiting
    assert not any(device.slot_waits for device in world.devices.values())
    assert len(world.tally.placed) == len(world.tally.asked) == 400
    assert sum(len(world.tally.placed_on(device.index)) for device in world.devices.values()) == sum(
        place >= 0 for place in world.tally.placed
    )


class _Forgetful(Scheduler):
    """Loses every request without a word."""

    def handle(self, event: events.Event, now: float) -> list[actions.Action]:
        return []


class _Twice(Scheduler):
    """Answers every request twice."""

    def handle(self, event: events.Event, now: float) -> list[actions.Action]:
        if not isinstance(event, events.RequestsArrived):
            return []
        refusal = actions.Fail(event.requests[0], DeadlineExceeded(0.0, "waiting"))
        return [refusal, refusal]


class _Sleepless(_Forgetful):
    """Asks to be woken at once, for ever."""

    @property
    def next_wake_s(self) -> float | None:
        return 0.0


@pytest.mark.parametrize(
    ("broken", "says"),
    [(_Forgetful, "requests wait, and nothing is going to happen"), (_Twice, "second outcome"), (_Sleepless, "again")],
)
def test_a_broken_scheduler_is_found_out(tmp_path: Path, broken: type[Scheduler], says: str) -> None:
    simulated = recorded(tmp_path, "0,m,1,")
    fleet = assemble(simulated)
    world = World(broken({}), fleet, Traffic(simulated, fleet))
    with pytest.raises(SimulationError, match=says):
        world.run()
