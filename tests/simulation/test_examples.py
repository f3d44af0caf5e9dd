"""What the example scenarios are to show, on the first part of each."""

from dataclasses import replace
from pathlib import Path

import pytest

from moorage.scheduling.policy import policy_named
from moorage.simulation.loading import load_scenario
from moorage.simulation.report import PolicyFigures
from moorage.simulation.scenario import Scenario
from moorage.simulation.simulate import simulate

# Tracing would make these twice as long; the unit tests cover the core.
pytestmark = pytest.mark.no_cover

FOLDER = Path(__file__).parents[2] / "examples" / "scenarios"


def example(name: str) -> Scenario:
    return load_scenario(FOLDER / f"{name}.toml")


def urgent(shown: PolicyFigures) -> tuple[float, float]:
    first = shown.priorities[0]
    assert first.priority == 1
    return first.p50_s, first.p99_s


def test_eviction_brings_back_less_than_lru() -> None:
    (shown,) = simulate(replace(example("zipf"), requests=20_000), [policy_named("moorage")]).policies
    assert shown.answered >= 0.99 * shown.requests
    assert shown.returned.size_bytes <= 0.85 * shown.one_cache.lru_bytes
    assert shown.one_cache == shown.as_placed  # there is one device, and every request ran on it


def test_bursts_of_urgent_work_do_not_wait_for_the_rest() -> None:
    moorage, lru = simulate(
        replace(example("bursts"), duration_s=300.0), [policy_named("moorage"), policy_named("lru")]
    ).policies
    assert urgent(moorage) < urgent(lru)
    assert urgent(moorage)[0] < 0.3 * urgent(lru)[0]
    assert moorage.preemptions > 10
    assert moorage.goodput_per_s > 1.2 * lru.goodput_per_s


def test_a_fleet_answers_nearly_everybody() -> None:
    (shown,) = simulate(replace(example("fleet"), requests=10_000), [policy_named("moorage")]).policies
    assert shown.answered + sum(shown.failures.values()) == 10_000
    assert shown.answered >= 0.8 * shown.requests  # the first loads included
    assert shown.kills == 0
