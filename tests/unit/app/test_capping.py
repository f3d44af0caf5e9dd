"""Hard caps of CUDA workers follow the ledger."""

from moorage.app.capping import SLACK_BYTES_PER_MODEL, Caps
from moorage.domain.model import Isolation, ModelKey
from moorage.scheduling import events
from moorage.scheduling.scheduler import Scheduler
from moorage.scheduling.state import DeviceLimits
from tests.support.scheduling import RESULT, make_request, make_spec

CAPACITY, CONTEXT = 1000, 10
SHARED, OWN = "cuda:0", "cuda:0/own/1"


class Told:
    """A pool that notes the caps it is told, less the slack of the worker's models."""

    def __init__(self) -> None:
        self.caps: list[tuple[str, int]] = []

    def cap(self, name: str, size_bytes: int) -> None:
        self.caps.append((name, size_bytes - SLACK_BYTES_PER_MODEL))

    def since_then(self) -> dict[str, int]:
        caps, self.caps = dict(self.caps), []
        return caps


class World:
    def __init__(self, device: str = "cuda:0") -> None:
        self.scheduler = Scheduler({device: DeviceLimits(CAPACITY, CONTEXT, run_slots=4)})
        self.told = Told()
        self.caps = Caps(self.scheduler.state, self.told)  # type: ignore[arg-type]

    def send(self, event: events.Event) -> dict[str, int]:
        self.caps.decided(event, self.scheduler.handle(event, 0.0))
        return self.told.since_then()

    def load(self, name: str, weights: int, isolation: Isolation = Isolation.SHARED) -> dict[str, int]:
        key = ModelKey(name, 1)
        self.send(events.ModelRegistered(key, make_spec(name, weights=weights, fixed=50, isolation=isolation)))
        told = self.send(events.LoadRequested(key))
        told |= self.send(events.WorkerUp(self.scheduler.state.models[key].worker or ""))
        return told | self.send(events.ModelLoaded(key, weights))


def test_a_worker_alone_may_take_all_but_its_context() -> None:
    assert World().load("shared", 100) == {SHARED: CAPACITY - CONTEXT}


def test_what_others_hold_is_not_its_to_take() -> None:
    world = World()
    world.load("shared", 100)
    told = world.load("own", 300, Isolation.DEDICATED)
    assert told == {SHARED: CAPACITY - CONTEXT - 310, OWN: CAPACITY - CONTEXT - 110}


def test_a_hold_counts_and_so_does_its_end() -> None:
    world = World()
    world.load("shared", 100)
    assert world.send(events.HoldRequested(1, "cuda:0", 400, 3, 10.0)) == {SHARED: CAPACITY - CONTEXT - 400}
    assert world.send(events.HoldReleased(1)) == {SHARED: CAPACITY - CONTEXT}


def test_less_capacity_is_a_lower_cap() -> None:
    world = World()
    world.load("shared", 100)
    assert world.send(events.CapacityChanged("cuda:0", 700)) == {SHARED: 700 - CONTEXT}


def test_runs_change_nothing_of_it() -> None:
    world = World()
    world.load("shared", 100)
    assert world.send(events.RequestsArrived((make_request(1, model=ModelKey("shared", 1)),))) == {}
    assert world.send(events.RunFinished(1, RESULT)) == {}


def test_a_worker_that_comes_back_is_told_anew() -> None:
    world = World()
    world.load("shared", 100)
    world.send(events.WorkerLost(SHARED, "it died"))
    world.send(events.TimeReached())
    assert world.send(events.WorkerUp(SHARED)) == {SHARED: CAPACITY - CONTEXT}


def test_a_cpu_has_no_caps() -> None:
    assert World("cpu").load("shared", 100) == {}
