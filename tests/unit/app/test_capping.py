"""Hard caps of CUDA workers follow the ledger."""

from moorage.app.capping import SLACK_BYTES_PER_MODEL, Caps
from moorage.domain.model import Isolation, Loading, ModelKey
from moorage.scheduling import events
from moorage.scheduling.records import WorkerState
from moorage.scheduling.scheduler import Scheduler
from moorage.scheduling.state import DeviceLimits
from tests.support.scheduling import RESULT, make_request, make_spec

CAPACITY, CONTEXT = 1000, 10
SHARED, OWN = "cuda:0", "cuda:0/own/1"


class Told:
    """A pool that notes the caps it is told, less the slack of the worker's model; and what it is told to give back.

    keeps: what each worker may keep for itself, by the last word on it.
    """

    def __init__(self) -> None:
        self.caps: list[tuple[str, int]] = []
        self.keeps: dict[str, tuple[bool, bool]] = {}
        self.gave_back: list[str] = []

    def cap(self, name: str, size_bytes: int, *, keeps_cached: bool, keeps_pinned: bool) -> None:
        self.caps.append((name, size_bytes - SLACK_BYTES_PER_MODEL))
        self.keeps[name] = (keeps_cached, keeps_pinned)

    def give_back(self, name: str) -> None:
        assert not all(self.keeps[name]), "it is told first that it may keep nothing"
        self.gave_back.append(name)

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

    def ask(self, request_id: int, name: str) -> dict[str, int]:
        """Have a model run; what was told when it began."""
        return self.send(events.RequestsArrived((make_request(request_id, model=ModelKey(name, 1)),)))

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
    assert world.ask(1, "shared") == {}
    assert world.send(events.RunFinished(1, RESULT)) == {}


def test_what_a_run_takes_is_not_another_workers_while_it_lasts() -> None:
    world = World()
    world.load("shared", 100)
    world.load("own", 300, Isolation.DEDICATED)
    before = CAPACITY - CONTEXT - 310, CAPACITY - CONTEXT - 110
    assert world.ask(1, "own") == {SHARED: before[0] - 50}
    assert world.ask(2, "shared") == {OWN: before[1] - 50}
    assert world.send(events.RunFinished(1, RESULT)) == {SHARED: before[0]}
    assert world.send(events.RunFinished(2, RESULT)) == {OWN: before[1]}


def test_what_is_leased_for_a_worker_that_only_starts_is_its_own_already() -> None:
    world = World()
    world.load("shared", 100)
    own = ModelKey("own", 1)
    spec = make_spec("own", weights=300, fixed=50, isolation=Isolation.DEDICATED, loading=Loading.ON_DEMAND)
    world.send(events.ModelRegistered(own, spec))
    assert world.ask(1, "own") == {SHARED: CAPACITY - CONTEXT - 310 - 50}
    assert world.scheduler.state.workers[OWN].state is WorkerState.STARTING


def test_a_worker_alone_keeps_what_is_free_again() -> None:
    world = World()
    world.load("shared", 100)
    world.ask(1, "shared")
    world.send(events.RunFinished(1, RESULT))
    assert (world.told.keeps, world.told.gave_back) == ({SHARED: (True, True)}, [])


def test_it_gives_that_back_as_soon_as_another_has_a_place() -> None:
    world = World()
    world.load("shared", 100)
    own = ModelKey("own", 1)
    world.send(events.ModelRegistered(own, make_spec("own", weights=300, isolation=Isolation.DEDICATED)))
    world.send(events.LoadRequested(own))
    assert (world.told.keeps, world.told.gave_back) == ({SHARED: (False, False)}, [SHARED])
    world.send(events.WorkerUp(OWN))
    world.send(events.ModelLoaded(own, 300))
    assert world.told.keeps == {SHARED: (False, False), OWN: (False, False)}
    world.send(events.UnloadRequested(own))
    world.send(events.ModelUnloaded(own))
    assert world.told.keeps[SHARED] == (False, False), "its process has not ended"
    world.send(events.WorkerLost(OWN, "told to end"))
    assert world.told.keeps[SHARED] == (True, True)
    assert world.told.gave_back == [SHARED]


def test_a_hold_wants_the_card_and_not_the_host() -> None:
    world = World()
    world.load("shared", 100)
    world.send(events.HoldRequested(1, "cuda:0", 400, 3, 10.0))
    assert (world.told.keeps, world.told.gave_back) == ({SHARED: (False, True)}, [SHARED])
    world.send(events.HoldReleased(1))
    assert world.told.keeps == {SHARED: (True, True)}


def test_a_hold_that_waits_is_prepared_for() -> None:
    world = World()
    world.load("shared", 100)
    world.ask(1, "shared")
    world.send(events.HoldRequested(1, "cuda:0", CAPACITY - CONTEXT, 3, 10.0))
    assert [hold.lease for hold in world.scheduler.state.holds.values()] == [None]
    assert (world.told.keeps, world.told.gave_back) == ({SHARED: (False, True)}, [SHARED])


def test_a_worker_that_comes_back_is_told_anew() -> None:
    world = World()
    world.load("shared", 100)
    world.send(events.WorkerLost(SHARED, "it died"))
    world.send(events.TimeReached())
    assert world.send(events.WorkerUp(SHARED)) == {SHARED: CAPACITY - CONTEXT}


def test_a_cpu_has_no_caps() -> None:
    assert World("cpu").load("shared", 100) == {}
