"""Simulated processes, told by hand what to do: when they answer, and what they hold meanwhile."""

import pytest

from moorage.domain.model import ModelKey
from moorage.domain.request import InferenceRequest, StepResult
from moorage.scheduling import actions, events
from moorage.scheduling.budget import Lease, LeaseKind
from moorage.scheduling.entries import Entry
from moorage.simulation.agenda import Agenda
from moorage.simulation.devices import number_devices
from moorage.simulation.errors import SimulationError
from moorage.simulation.fleet import assemble
from moorage.simulation.processes import QUICK_S, START_S, Processes
from moorage.simulation.tally import Tally
from tests.support.scenarios import scenario

SCENARIO = """
requests = 1
[[devices]]
name = "cuda"
capacity = 1000
context = 100
host_capacity = 1000
disk_per_s = 100
host_to_device_per_s = 200
device_to_host_per_s = 400
{slots}
[[models]]
name = "m"
count = 3
weights = 200
run_s = 2
run_s_per_row = 0.5
max_batch_size = 4
[[models]]
name = "stepped"
weights = 100
run_s = 1
steps = 2
state = 40
max_batch_size = 4
[[arrivals]]
pattern = "poisson"
rate_per_s = 1
"""
A, B, C, STEPPED = (ModelKey(name, 1) for name in ("m-0", "m-1", "m-2", "stepped"))


class Outside:
    """Processes, and what they answered by now."""

    def __init__(self, slots: str = "") -> None:
        fleet = assemble(scenario(SCENARIO.format(slots=slots)))
        self.specs = fleet.specs
        self.answers: list[tuple[float, events.Event]] = []
        self.agenda = Agenda()
        self.tally = Tally()
        self.devices = number_devices(fleet.devices.items())
        self.cuda = self.devices["cuda"]
        self.processes = Processes(
            fleet, self.devices, self.agenda, self.tally, lambda it: self.answers.append((self.agenda.now_s, it))
        )
        self.runs = 0

    def order(self, *orders: actions.Action) -> None:
        for order in orders:
            self.processes.performs[type(order)](order)

    def answered(self) -> list[tuple[float, events.Event]]:
        """Let everything happen that was ordered; the answers, with seconds since it was."""
        start_s = self.agenda.now_s
        self.answers.clear()
        while self.agenda.next_s is not None:
            self.agenda.advance()
        return [(round(time_s - start_s, 9), event) for time_s, event in self.answers]

    def started(self) -> "Outside":
        self.order(actions.StartWorker("cuda", "cuda"))
        self.answered()
        return self

    def with_models(self, *keys: ModelKey) -> "Outside":
        self.started().order(*(self.load(key) for key in keys))
        self.answered()
        return self

    def load(self, key: ModelKey) -> actions.Load:
        return actions.Load(key, self.specs[key], "cuda")

    def run(self, key: ModelKey, *ids: int, workspace: int = 0, step: actions.StepPlan | None = None) -> actions.Run:
        self.runs += 1
        lease = Lease("cuda", str(key), LeaseKind.WORKSPACE, workspace)
        entries = tuple(entry(key, request_id) for request_id in ids)
        return actions.Run(self.runs, key, "cuda", entries, len(ids), lease, self.agenda.now_s, step)


def entry(key: ModelKey, request_id: int) -> Entry:
    request = InferenceRequest(request_id, "", key, (), 1, 0, 0.0, 1000.0)
    return Entry(request)


@pytest.fixture
def outside() -> Outside:
    return Outside()


def announce(outside: Outside, *ids: int) -> None:
    for request_id in ids:
        outside.tally.arrived(entry(A, request_id).request, 0)


def test_a_worker_comes_up_and_holds_its_own_memory(outside: Outside) -> None:
    outside.order(actions.StartWorker("cuda", "cuda"))
    assert outside.cuda.held_bytes == 100
    assert outside.answered() == [(START_S, events.WorkerUp("cuda"))]


def test_loads_share_the_disk(outside: Outside) -> None:
    outside.started().order(outside.load(A), outside.load(B))
    assert outside.cuda.held_bytes == 500
    assert outside.answered() == [
        (2.0, events.ModelLoaded(A, 200, load_s=2.0, can_offload=True)),
        (4.0, events.ModelLoaded(B, 200, load_s=2.0, can_offload=True)),
    ]
    assert (outside.tally.loads.count, outside.tally.reloads.count) == (2, 0)


def test_a_stepped_model_says_so(outside: Outside) -> None:
    outside.started().order(outside.load(STEPPED))
    assert outside.answered()[0][1] == events.ModelLoaded(STEPPED, 100, load_s=1.0, stepped=True, can_offload=True)


def test_one_transfer_at_a_time_in_each_direction(outside: Outside) -> None:
    outside.with_models(A, B).order(actions.Offload(A, "cuda"), actions.Offload(B, "cuda"))
    assert outside.cuda.held_bytes == 500  # free only when it is answered
    assert outside.answered() == [(0.5, events.ModelOffloaded(A)), (1.0, events.ModelOffloaded(B))]
    assert outside.cuda.held_bytes == 100
    outside.order(actions.Restore(A, "cuda"), actions.Restore(B, "cuda"), outside.load(C))
    assert [time_s for time_s, _ in outside.answered()] == [1.0, 2.0, 2.0]
    assert (outside.tally.restores.count, outside.tally.restores.size_bytes) == (2, 400)
    outside.order(actions.Offload(A, "cuda"))
    outside.answered()
    outside.order(actions.Restore(A, "cuda"), actions.Offload(B, "cuda"))
    assert outside.answered() == [(0.5, events.ModelOffloaded(B)), (1.0, events.ModelRestored(A, 1.0))]


def test_a_model_that_is_loaded_again_came_back(outside: Outside) -> None:
    outside.with_models(A).order(actions.Unload(A, "cuda"))
    assert outside.answered() == [(QUICK_S, events.ModelUnloaded(A))]
    assert outside.cuda.held_bytes == 100
    outside.order(outside.load(A))
    assert (outside.tally.reloads.count, outside.tally.reloads.size_bytes) == (1, 200)


def test_a_run_takes_its_table_time_and_its_workspace(outside: Outside) -> None:
    outside.with_models(A)
    announce(outside, 0, 1)
    run = outside.run(A, 0, 1, workspace=50)
    outside.order(actions.Execute(run))
    assert outside.cuda.held_bytes == 350
    ((time_s, event),) = outside.answered()
    assert (time_s, isinstance(event, events.RunFinished)) == (3.0, True)
    assert (outside.cuda.held_bytes, outside.cuda.busy_s) == (300, 3.0)
    assert outside.tally.placed == [0, 0]


@pytest.mark.parametrize(("slots", "seconds"), [("", [2.5, 5.0, 7.5]), ("run_slots = 2", [2.5, 2.5, 5.0])])
def test_runs_wait_for_a_slot(slots: str, seconds: list[float]) -> None:
    outside = Outside(slots).with_models(A, B, C)
    announce(outside, 0, 1, 2)
    outside.order(*(actions.Execute(outside.run(key, position)) for position, key in enumerate((A, B, C))))
    assert [time_s for time_s, _ in outside.answered()] == seconds
    assert outside.cuda.slot_waits == len(set(seconds)) - 1


def test_a_killed_process_says_nothing_more_and_frees_everything(outside: Outside) -> None:
    outside.with_models(A)
    announce(outside, 0)
    outside.order(actions.Execute(outside.run(A, 0, workspace=50)), outside.load(B))
    outside.order(actions.KillWorker("cuda", "it hangs"))
    assert outside.answered() == [(QUICK_S, events.WorkerLost("cuda", "it hangs"))]
    assert (outside.cuda.held_bytes, outside.tally.kills) == (0, 1)
    outside.order(actions.StartWorker("cuda", "cuda"))
    assert outside.answered() == [(START_S, events.WorkerUp("cuda"))]


def test_a_stopped_process_says_so_once(outside: Outside) -> None:
    outside.started().order(actions.StopWorker("cuda"), actions.StopWorker("cuda"))
    assert outside.answered() == [(QUICK_S, events.WorkerLost("cuda", "stopped"))]
    assert outside.tally.kills == 0


def test_more_memory_than_there_is_is_an_error(outside: Outside) -> None:
    outside.with_models(A, B, C)
    announce(outside, 0)
    with pytest.raises(SimulationError, match=r"cuda holds 1001 bytes of 1000"):
        outside.order(actions.Execute(outside.run(A, 0, workspace=301)))


def step(outside: Outside, *ids: int, starting: int = 0, resuming: int = 0) -> tuple[float, events.Event]:
    """The next step of the stepped model; the first so many members start, the next so many resume."""
    run = outside.run(STEPPED, *ids)
    plan = actions.StepPlan(run.entries[:starting], run.entries[starting : starting + resuming])
    outside.order(actions.Execute(outside.run(STEPPED, *ids, step=plan)))
    (answer,) = outside.answered()
    return answer


def test_steps_are_counted_by_request(outside: Outside) -> None:
    outside.with_models(STEPPED)
    announce(outside, 0, 1)
    _, first = step(outside, 0, starting=1)
    assert isinstance(first, events.StepFinished)
    assert first.results == (StepResult(0, done=False, state_bytes=40),)
    assert outside.cuda.held_bytes == 240
    _, second = step(outside, 1, 0, starting=1)
    assert isinstance(second, events.StepFinished)
    assert second.results == (StepResult(1, done=False, state_bytes=40), StepResult(0, done=True, state_bytes=0))
    assert outside.cuda.held_bytes == 240


def test_a_suspended_request_goes_on_where_it_was(outside: Outside) -> None:
    outside.with_models(STEPPED)
    announce(outside, 0)
    step(outside, 0, starting=1)
    outside.order(actions.Suspend(STEPPED, "cuda", (0,)))
    assert outside.cuda.held_bytes == 240
    assert outside.answered() == [(0.1, events.StatesSuspended(STEPPED, (0,)))]
    assert (outside.cuda.held_bytes, outside.tally.suspensions) == (200, 1)
    time_s, finished = step(outside, 0, resuming=1)
    assert time_s == 1.2  # its state comes back first
    assert isinstance(finished, events.StepFinished)
    assert finished.results == (StepResult(0, done=True, state_bytes=0),)
    assert outside.cuda.held_bytes == 200


def test_a_dropped_request_begins_again(outside: Outside) -> None:
    outside.with_models(STEPPED)
    announce(outside, 0)
    step(outside, 0, starting=1)
    outside.order(actions.Drop(STEPPED, "cuda", (0,)))
    assert outside.answered() == [(QUICK_S, events.StatesDropped(STEPPED, (0,)))]
    assert (outside.cuda.held_bytes, outside.tally.drops) == (200, 1)
    _, finished = step(outside, 0, starting=1)
    assert isinstance(finished, events.StepFinished)
    assert finished.results == (StepResult(0, done=False, state_bytes=40),)


def test_dropping_what_nobody_waits_for_is_no_preemption(outside: Outside) -> None:
    outside.with_models(STEPPED)
    announce(outside, 0)
    step(outside, 0, starting=1)
    outside.tally.waiting.clear()
    outside.order(actions.Drop(STEPPED, "cuda", (0,)))
    assert outside.tally.drops == 0


def test_memory_is_averaged_over_time(outside: Outside) -> None:
    outside.cuda.hold(100, 0.0)
    outside.cuda.hold(300, 6.0)
    assert outside.cuda.mean_held_bytes(8.0) == (100 * 6 + 400 * 2) / 8
