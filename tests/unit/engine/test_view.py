"""When the server as a whole is ready."""

import asyncio
from pathlib import PurePath

import pytest

from moorage.domain.model import Loading, ModelSpec
from moorage.engine.catalog import Catalog, Serving
from moorage.engine.engine import Engine
from moorage.engine.view import take_snapshot
from moorage.scheduling.events import ModelRegistered
from moorage.scheduling.scheduler import Scheduler
from moorage.scheduling.state import DeviceLimits
from tests.support.instant_workers import InstantWorkers


def ready(*loadings: Loading, broken: bool = False, loaded: tuple[int, ...] = ()) -> bool:
    """Of a server whose models load at these times, and of which those at the given places are loaded."""

    async def run() -> bool:
        engine = Engine(Scheduler({"cpu": DeviceLimits(1000)}))
        engine.attach(InstantWorkers(engine.post))
        owner = asyncio.create_task(engine.run())
        catalog = Catalog()
        servings = []
        for number, loading in enumerate(loadings):
            spec = ModelSpec(f"m{number}", 1, "python", (), (), PurePath("m"), loading=loading)
            serving = Serving(catalog.new_key(spec), spec)
            catalog.put(serving)
            servings.append(serving)
            engine.post(ModelRegistered(serving.key, spec))
        for place in loaded:
            await engine.load(servings[place].key)
        if broken:
            catalog.broken["b"] = "no model.toml"
        await asyncio.sleep(0)
        snapshot = take_snapshot(engine, catalog, started=True)
        owner.cancel()
        await asyncio.gather(owner, return_exceptions=True)
        return snapshot.ready

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("loadings", "broken", "loaded", "expected"),
    [
        ((), False, (), True),
        ((), True, (), False),
        ((Loading.EAGER,), False, (0,), True),
        ((Loading.EAGER,), True, (0,), True),
        ((Loading.EAGER,), False, (), False),
        ((Loading.EAGER, Loading.EAGER), False, (1,), True),
        ((Loading.ON_DEMAND,), False, (), True),
        ((Loading.EXPLICIT,), False, (), True),
        ((Loading.EXPLICIT, Loading.EAGER), False, (), False),
        ((Loading.EXPLICIT,), True, (0,), True),
    ],
)
def test_ready(loadings: tuple[Loading, ...], broken: bool, loaded: tuple[int, ...], expected: bool) -> None:
    assert ready(*loadings, broken=broken, loaded=loaded) is expected
