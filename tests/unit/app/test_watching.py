"""From what the monitor says to what a device offers."""

import pytest

from moorage.app.watching import Capacities
from moorage.config import Settings
from moorage.scheduling.events import CapacityChanged

CUDA = "cuda:0"


class Engine:
    def __init__(self) -> None:
        self.capacities: list[int] = []

    def post(self, event: CapacityChanged) -> None:
        assert event.device == CUDA
        self.capacities.append(event.capacity_bytes)


class Pool:
    def __init__(self) -> None:
        self.pids = {CUDA: 1, f"{CUDA}/own/1": 2, "cpu": 3, "cuda:01": 4}
        self.asked: list[str] = []

    def give_back(self, name: str) -> None:
        self.asked.append(name)


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture
def pool() -> Pool:
    return Pool()


@pytest.fixture
def capacities(engine: Engine, pool: Pool) -> Capacities:
    settings = Settings.model_validate({"devices": {CUDA: {"budget": 800, "reserve": 50, "context": 0}}})
    return Capacities(settings, engine, pool)  # type: ignore[arg-type]


def test_the_budget_stands_while_others_leave_enough(capacities: Capacities, engine: Engine) -> None:
    capacities.read(CUDA, 1000, 200)
    assert engine.capacities == [750]


def test_what_others_hold_of_the_budget_is_taken_off(capacities: Capacities, engine: Engine) -> None:
    for others_bytes in (0, 600, 600, 100):
        capacities.read(CUDA, 1000, others_bytes)
    assert engine.capacities == [750, 350, 750]


def test_others_may_hold_more_than_everything(capacities: Capacities, engine: Engine) -> None:
    capacities.read(CUDA, 1000, 990)
    assert engine.capacities == [0]


def test_a_lost_card_offers_nothing_until_it_is_back(capacities: Capacities, engine: Engine) -> None:
    capacities.lost(CUDA, "fell off the bus")
    capacities.read(CUDA, 1000, 0)
    assert engine.capacities == [0, 750]


def test_where_nothing_can_be_told_the_budget_stands(capacities: Capacities, engine: Engine) -> None:
    capacities.read(CUDA, 1000, 900)
    capacities.unknown(CUDA)
    assert engine.capacities == [50, 750]


def test_workers_of_the_device_give_back_what_they_cached_when_it_shrinks(capacities: Capacities, pool: Pool) -> None:
    capacities.read(CUDA, 1000, 0)
    assert pool.asked == []
    capacities.read(CUDA, 1000, 500)
    assert pool.asked == [CUDA, f"{CUDA}/own/1"]
