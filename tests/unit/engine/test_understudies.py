"""A request that is computed on another device: its caller gets one outcome, and views show who computes it."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from moorage.domain.errors import OutOfMemory
from moorage.domain.model import ModelKey, ModelSpec, ModelState
from moorage.engine.catalog import Catalog, Serving
from moorage.engine.control import Control
from moorage.engine.engine import Engine
from moorage.engine.inquiry import footprints
from moorage.engine.snapshot import ModelSnapshot, ResidencyCounts
from moorage.engine.view import take_snapshot
from moorage.scheduling.events import RunFailed
from moorage.scheduling.scheduler import Scheduler
from moorage.scheduling.state import DeviceLimits
from tests.support.instant_workers import InstantWorkers
from tests.unit.engine.test_engine import KEY, SPEC, House

FALLEN_BACK = replace(SPEC, devices=("cuda:0",), fallback="cpu")


class Carded(House):
    """An engine with a card and the host, and one model on the card."""

    def __init__(self) -> None:
        devices = {"cuda:0": DeviceLimits(1000), "cpu": DeviceLimits(1000)}
        self.engine = Engine(Scheduler(devices), check_integrity=True)
        self.workers = InstantWorkers(self.engine.post)
        self.engine.attach(self.workers)
        self.owner = asyncio.create_task(self.engine.run())
        self.catalog = Catalog()
        self.control = Control(self.engine, self.catalog, Repository())

    async def start(self) -> None:
        await self.control.register_all()
        await self.engine.load(KEY)

    async def run_out(self) -> None:
        """The latest run finds no memory."""
        self.engine.post(RunFailed(self.workers.runs[-1].run_id, OutOfMemory("a run")))
        await self.settle()

    def status(self) -> ModelSnapshot:
        (model,) = take_snapshot(self.engine, self.catalog, started=True).models
        return model


class Repository:
    def scan(self) -> tuple[tuple[ModelSpec, ...], dict[str, str]]:
        return (FALLEN_BACK,), {}

    def scan_model(self, name: str) -> tuple[ModelSpec, ...]:
        return (FALLEN_BACK,)


def carded(scenario: Callable[[Carded], Awaitable[None]]) -> None:
    async def run() -> None:
        house = Carded()
        await house.start()
        await scenario(house)
        house.owner.cancel()
        await asyncio.gather(house.owner, return_exceptions=True)

    asyncio.run(run())


def test_its_caller_gets_the_answer_and_the_model_is_credited_with_it() -> None:
    async def scenario(house: Carded) -> None:
        task = house.ask(7)
        await house.settle()
        await house.run_out()
        run = house.workers.runs[-1]
        assert (run.key, run.worker) == (ModelKey("m", 1, -1), "cpu")
        house.workers.finish(run)
        assert await task == b"\7"
        statistics = house.engine.statistics.of(KEY)
        assert (statistics.success.count, statistics.fail.count) == (1, 0)

    carded(scenario)


def test_where_it_fails_too_its_caller_is_told_once() -> None:
    async def scenario(house: Carded) -> None:
        task = house.ask(7)
        await house.settle()
        await house.run_out()
        await house.run_out()
        with pytest.raises(OutOfMemory, match="found no memory on cuda:0 nor on cpu"):
            await task
        assert house.engine.statistics.of(KEY).fail.count == 1
        assert house.engine.is_idle

    carded(scenario)


def test_a_caller_who_leaves_is_not_missed_there() -> None:
    async def scenario(house: Carded) -> None:
        task = house.ask(7)
        await house.settle()
        await house.run_out()
        task.cancel()
        await house.settle()
        house.workers.finish(house.workers.runs[-1])
        await house.settle()
        assert house.engine.is_idle
        assert not house.engine.scheduler.state.entries

    carded(scenario)


def test_a_snapshot_shows_it_below_its_model() -> None:
    async def scenario(house: Carded) -> None:
        assert house.status().understudies == ()
        house.ask(7)
        await house.settle()
        await house.run_out()
        model = house.status()
        assert (model.device, model.running) == ("cuda:0", 0)
        assert model.residency == ResidencyCounts(loads=1, out_of_memory=1, oom_fallback=1)
        (understudy,) = model.understudies
        assert (understudy.version, understudy.device, understudy.state) == ("1~1", "cpu", ModelState.RESIDENT)
        assert understudy.running == 1

    carded(scenario)


def test_it_is_no_footprint_of_the_model() -> None:
    async def scenario(house: Carded) -> None:
        house.ask(7)
        await house.settle()
        await house.run_out()
        assert [(key, device) for key, _, device, _ in footprints(house.engine)] == [(KEY, "cuda:0")]

    carded(scenario)


def test_it_goes_with_the_model_and_a_new_one_with_the_next() -> None:
    async def scenario(house: Carded) -> None:
        house.ask(7)
        await house.settle()
        await house.run_out()
        house.workers.finish(house.workers.runs[-1])
        await house.control.unload("m")
        assert not house.engine.scheduler.state.models
        await house.control.load("m")
        assert house.status().understudies == ()
        assert house.status().ready

    carded(scenario)


def test_a_fallback_that_the_server_does_not_have_is_told_when_the_model_is_registered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def run(devices: tuple[str, ...]) -> None:
        engine = Engine(Scheduler({name: DeviceLimits(1000) for name in devices}))
        await Control(engine, Catalog(), Repository()).register_all()

    asyncio.run(run(("cuda:0", "cpu")))
    assert not caplog.messages
    asyncio.run(run(("cuda:0", "cuda:1")))
    (told,) = caplog.messages
    assert told == (
        "model m/1: placement.fallback = 'cpu' is no device of this server, which has cuda:0, cuda:1: what finds no "
        "memory is refused"
    )


def test_serving_knows_nothing_of_it() -> None:
    async def scenario(house: Carded) -> None:
        house.ask(7)
        await house.settle()
        await house.run_out()
        assert house.catalog.all() == [Serving(KEY, FALLEN_BACK)]

    carded(scenario)
