"""Devices and models of trials in which runs find no memory though the ledger had it."""

from moorage.domain.errors import MoorageError, OutOfMemory
from moorage.domain.model import ModelKey, ModelSpec
from moorage.scheduling import events
from moorage.scheduling.policy import MOORAGE
from moorage.scheduling.records import Counts
from tests.support.core import Core
from tests.support.scheduling import UNGUARDED, make_spec

NO_MEMORY = OutOfMemory("a run")
# The first understudy of the model that all tests have.
UNDERSTUDY = ModelKey("model", 1, -1)


def carded(capacities: dict[str, int] | None = None) -> Core:
    """By default one card and the host. Models may be put out as soon as they are there."""
    return Core(UNGUARDED, MOORAGE, **(capacities or {"cuda:0": 100, "cpu": 100}))


def on_a_card(core: Core, spec: ModelSpec | None = None) -> ModelKey:
    """The model, which has a fallback unless told otherwise."""
    return core.resident(spec or make_spec(devices=("cuda:0",), fallback="cpu"))


def run_out(core: Core, run_id: int) -> list[str]:
    """The run finds no memory."""
    return core.send(events.RunFailed(run_id, NO_MEMORY))


def counted(core: Core) -> Counts:
    """What is counted of want of memory."""
    counts = core.model().counts
    counts.loads = counts.evictions = 0
    return counts


def error_of(core: Core) -> MoorageError:
    (error,) = core.errors()
    return error


def on_its_fallback() -> Core:
    """Request 1 found no memory on the card in run 1, and is in run 2, of the model's understudy."""
    core = carded()
    on_a_card(core)
    core.ask(1)
    run_out(core, 1)
    core.up()
    core.loaded(UNDERSTUDY)
    return core
