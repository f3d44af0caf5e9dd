"""What was measured of a model is known when it is loaded again, and kept in the file."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from moorage.app import footprints
from moorage.app.footprints import RememberedFootprints
from moorage.domain.model import Footprint, ModelKey, ModelSpec
from moorage.engine.engine import Engine
from moorage.repository.footprints import FootprintKey, FootprintStore
from moorage.scheduling.events import ModelLoaded, ModelRegistered
from moorage.scheduling.scheduler import Scheduler
from moorage.scheduling.state import DeviceLimits
from tests.support.instant_workers import InstantWorkers
from tests.support.scheduling import make_spec

HINT_BYTES, MEASURED_BYTES = 100, 300
SPEC = make_spec(weights=None, hint=HINT_BYTES)
KEPT = FootprintKey(SPEC.name, SPEC.version, "cpu", SPEC.fingerprint)


class MeasuringWorkers(InstantWorkers):
    """They find that a model takes more than its files. slow: unloads are not done yet."""

    slow = False

    def load(self, name: str, key: ModelKey, spec: ModelSpec) -> None:
        self._post(ModelLoaded(key, MEASURED_BYTES, load_s=2.0))

    def unload(self, name: str, key: ModelKey) -> None:
        if not self.slow:
            super().unload(name, key)


class House:
    """An engine whose models are registered with what is remembered of them."""

    def __init__(self, path: Path | None) -> None:
        self.engine = Engine(Scheduler({"cpu": DeviceLimits(1000)}), check_integrity=True)
        self.workers = MeasuringWorkers(self.engine.post)
        self.engine.attach(self.workers)
        self.remembered = RememberedFootprints(path, self.engine)
        self.engine.observe(self.remembered.decided)
        self._generation = 0

    def register(self, spec: ModelSpec = SPEC) -> ModelKey:
        key = ModelKey(spec.name, spec.version, self._generation)
        self._generation += 1
        self.engine.post(ModelRegistered(key, spec, self.remembered.of(spec)))
        return key

    async def come_and_go(self, spec: ModelSpec = SPEC) -> None:
        key = self.register(spec)
        await self.engine.load(key)
        await self.engine.unload(key)


def _with_house(path: Path | None, use: Callable[[House], Awaitable[None]]) -> None:
    async def run() -> None:
        house = House(path)
        owner = asyncio.create_task(house.engine.run())
        await house.remembered.recall()
        await use(house)
        owner.cancel()
        await asyncio.gather(owner, return_exceptions=True)

    asyncio.run(run())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "footprints.sqlite3"


def test_a_model_that_left_is_known_by_what_was_measured(path: Path) -> None:
    FootprintStore(path).save({KEPT: Footprint(weights_bytes=200, load_s=1.0, restore_s=0.5)})

    async def use(house: House) -> None:
        assert house.remembered.of(SPEC).weights_bytes == 200
        await house.come_and_go()
        known = house.remembered.of(SPEC)
        assert (known.weights_bytes, known.load_s, known.restore_s) == (MEASURED_BYTES, 2.0, 0.5)

    _with_house(path, use)


def test_it_is_known_in_this_life_without_a_file() -> None:
    async def use(house: House) -> None:
        assert house.remembered.of(SPEC) == Footprint()
        await house.come_and_go()
        assert house.remembered.of(SPEC).weights_bytes == MEASURED_BYTES
        await house.remembered.keep()

    _with_house(None, use)


def test_a_model_that_is_still_going_is_known(path: Path) -> None:
    async def use(house: House) -> None:
        key = house.register()
        await house.engine.load(key)
        house.workers.slow = True
        going = asyncio.create_task(house.engine.unload(key))
        await asyncio.sleep(0)
        assert house.remembered.of(SPEC).weights_bytes == MEASURED_BYTES
        going.cancel()
        await asyncio.gather(going, return_exceptions=True)

    _with_house(path, use)


def test_one_that_was_never_in_memory_teaches_nothing() -> None:
    async def use(house: House) -> None:
        key = house.register()
        await house.engine.unload(key)
        assert house.remembered.of(SPEC) == Footprint()

    _with_house(None, use)


def test_other_files_are_another_model() -> None:
    async def use(house: House) -> None:
        await house.come_and_go()
        assert house.remembered.of(make_spec("another", weights=None)) == Footprint()

    _with_house(None, use)


def test_what_left_between_two_saves_is_in_the_file(path: Path) -> None:
    async def use(house: House) -> None:
        await house.come_and_go()
        await house.remembered.keep()

    _with_house(path, use)
    assert FootprintStore(path).load_all()[KEPT].weights_bytes == MEASURED_BYTES


def test_what_could_not_be_saved_is_saved_later(path: Path) -> None:
    path.mkdir()

    async def use(house: House) -> None:
        await house.come_and_go()
        await house.remembered.keep()
        await asyncio.to_thread(path.rmdir)
        await house.remembered.keep()

    _with_house(path, use)
    assert FootprintStore(path).load_all()[KEPT].weights_bytes == MEASURED_BYTES


def test_what_was_saved_is_not_written_again(path: Path) -> None:
    async def use(house: House) -> None:
        await house.come_and_go()
        await house.remembered.keep()
        await asyncio.to_thread(path.unlink)
        await house.remembered.keep()

    _with_house(path, use)
    assert FootprintStore(path).load_all() == {}


def test_of_too_many_that_left_the_latest_are_known(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(footprints, "MAX_ENTRIES", 2)
    specs = [make_spec(f"model_{number}", weights=None) for number in range(3)]

    async def use(house: House) -> None:
        for spec in specs:
            await house.come_and_go(spec)
        known = [house.remembered.of(spec).weights_bytes for spec in specs]
        assert known == [None, MEASURED_BYTES, MEASURED_BYTES]
        await house.remembered.keep()

    _with_house(path, use)
    assert {key.model for key in FootprintStore(path).load_all()} == {"model_1", "model_2"}


def test_the_device_that_was_measured_last_counts(path: Path) -> None:
    now_s = 1_700_000_000.0
    store = FootprintStore(path, wall_clock=lambda: now_s)
    store.save({KEPT._replace(device="cuda:0"): Footprint(weights_bytes=1)})
    now_s += 1.0
    store.save({KEPT: Footprint(weights_bytes=2)})

    async def use(house: House) -> None:
        assert house.remembered.of(SPEC).weights_bytes == 2
        house.register()
        assert house.remembered.of(SPEC).weights_bytes == 2

    _with_house(path, use)
