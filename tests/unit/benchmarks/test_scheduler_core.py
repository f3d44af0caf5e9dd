"""The benchmark of the core measures what it says: requests that are answered, wait, or put models out."""

import pytest
from benchmarks.scheduler_core import CASES, REFERENCE, Case, Cost, as_json, keep_waiting, measure, with_waiting
from benchmarks.scheduler_world import World

from moorage.domain.model import ModelState


def states(world: World) -> list[ModelState]:
    return [model.state for model in world.scheduler.state.models.values()]


def open_requests(world: World) -> int:
    return len(world.scheduler.state.entries)


def test_all_models_are_in_memory_where_they_fit() -> None:
    assert set(states(World(models=10))) == {ModelState.RESIDENT}


def test_half_of_them_where_half_fits() -> None:
    found = states(World(models=10, fitting=5))
    assert found.count(ModelState.RESIDENT) == 5


def test_as_many_wait_after_as_before() -> None:
    world = with_waiting(100, models=20, devices=4)()
    assert open_requests(world) == 104
    keep_waiting(world, world.requests(50))
    assert open_requests(world) == 104
    assert sum(device.runs for device in world.scheduler.state.devices.values()) == 4


@pytest.mark.parametrize("case", [case for case in CASES if "1,000" not in case.name], ids=lambda case: case.name)
def test_evictions_happen_under_pressure_alone(case: Case) -> None:
    cost = measure(case, 64)
    assert (cost.evictions_per_request > 0) == ("memory for" in case.name)
    assert (cost.per_eviction_us is None) == (cost.evictions_per_request == 0)


def test_ratios_are_to_the_reference() -> None:
    found = as_json({REFERENCE: Cost(20.0, 0.0), "pressed": Cost(60.0, 0.5)})
    assert found[REFERENCE]["ratio"] == 1.0
    assert found["pressed"]["ratio"] == 3.0
    assert found["pressed"]["per_eviction_us"] == 120.0
