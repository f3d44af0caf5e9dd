"""What is asked of the scheduler's state, and changed of it, besides requests and loads."""

from collections.abc import Callable

from moorage.domain.model import Footprint, ModelKey, ModelSpec, SharePolicy
from moorage.engine.engine import Engine
from moorage.scheduling.events import ShareChanged
from moorage.scheduling.explain import Explanation
from moorage.scheduling.foreseen import RunEstimate, run_estimates
from moorage.scheduling.records import footprint_of


def set_share(engine: Engine, key: ModelKey, change: Callable[[SharePolicy], SharePolicy]) -> SharePolicy:
    """Give a model another standing; answers the new one, which it has by then.

    Raises ModelNotFound, MemoryExhausted where a reservation is not free, and ServerDraining.
    """
    engine.catch_up()  # or it would be made of a standing that is about to be another one
    share = engine.scheduler.changed_share(key, change)
    engine.post(ShareChanged(key, share))
    engine.catch_up()
    model = engine.scheduler.state.models.get(key)
    if model is not None and model.share == share:
        return share
    # A timer that was due went first, and took the room: now that is known.
    return set_share(engine, key, change)


def explain(engine: Engine, key: ModelKey, rows: int, priority: int) -> Explanation | None:
    """What would happen if a model were asked for so many rows now. None where no device matches the model."""
    return engine.scheduler.explain(key, rows, priority, engine.now())


def estimates(engine: Engine, key: ModelKey) -> tuple[RunEstimate, ...]:
    """What is expected of a registered model's runs, and how that compared."""
    return run_estimates(engine.scheduler.state.models[key])


def footprints(engine: Engine) -> list[tuple[ModelKey, ModelSpec, str, Footprint]]:
    """What was measured in this life of the server: of which model, on which device."""
    now = engine.now()
    return [
        (key, model.spec, model.measured.device, footprint_of(model, now))
        for key, model in engine.scheduler.state.models.items()
        if model.measured.device is not None and not key.is_understudy
    ]


def leased_bytes(engine: Engine, device: str) -> int:
    """What the ledger has leased on a device."""
    return engine.scheduler.state.devices[device].budget.leased_bytes
