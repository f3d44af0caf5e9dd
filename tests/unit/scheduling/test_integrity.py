"""Every check notices what it is for: each case breaks one thing behind the scheduler's back."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from moorage.domain.model import ModelKey, ModelState
from moorage.scheduling.budget import LeaseKind
from moorage.scheduling.entries import Entry, Leaving
from moorage.scheduling.records import WorkerState
from moorage.scheduling.state import State
from tests.support.core import Core
from tests.support.scheduling import MODEL, UNGUARDED, make_request, make_spec

STEPPED = ModelKey("stepped", 1)


def leak_a_lease(state: State) -> None:
    state.devices["cpu"].budget.acquire("nobody", LeaseKind.WEIGHTS, 1)


def leak_a_lease_on_the_host(state: State) -> None:
    state.devices["cpu"].host.acquire("nobody", LeaseKind.WEIGHTS, 0)


def lose_a_lease(state: State) -> None:
    state.models[MODEL].weights = None


def own_a_lease_twice(state: State) -> None:
    state.models[MODEL].first_run = state.models[MODEL].weights


def resize_a_lease_behind_its_back(state: State) -> None:
    weights = state.models[MODEL].weights
    assert weights is not None
    weights.size_bytes += 1


def let_a_lease_leave_behind_its_back(state: State) -> None:
    weights = state.models[MODEL].weights
    assert weights is not None
    weights.leaving = True


def lease_more_of_the_host_than_there_is(state: State) -> None:
    del state.models[STEPPED]
    host = state.devices["cpu"].host
    state.models[MODEL].host = host.acquire("model/1", LeaseKind.WEIGHTS, 0)
    host.capacity_bytes = -1
    host.leased_bytes += 1


def miscount_what_a_share_holds(state: State) -> None:
    state.models[MODEL].semaphore.held_bytes += 1


def miscount_what_is_set_aside(state: State) -> None:
    state.models[MODEL].semaphore.reserved_bytes = 50


def forget_a_stir(state: State) -> None:
    state.stir("cpu")


def forget_a_touch(state: State) -> None:
    state.touch(state.models[MODEL])


def lose_a_request(state: State) -> None:
    state.entries[99] = Entry(make_request(99))


def queue_what_nobody_accepted(state: State) -> None:
    state.models[MODEL].queue.append(Entry(make_request(99)))


def queue_what_runs(state: State) -> None:
    state.models[MODEL].queue.append(state.entries[1])


def keep_a_state_of_what_waits(state: State) -> None:
    entry = state.entries[3]
    entry.state = state.devices["cpu"].budget.acquire("stepped/1", LeaseKind.STATE, 0)


def let_what_waits_leave(state: State) -> None:
    state.entries[3].leaving = Leaving.DROP


def go_on_without_a_state(state: State) -> None:
    entry = state.models[STEPPED].active[2]
    assert entry.state is not None
    state.devices["cpu"].budget.release(entry.state)
    entry.state = None


def keep_running_for_nobody(state: State) -> None:
    del state.entries[2]


def compute_for_nobody(state: State) -> None:
    del state.entries[1]


def leave_with_a_state_that_stays(state: State) -> None:
    state.models[STEPPED].active[2].leaving = Leaving.DROP


def miscount_a_queue(state: State) -> None:
    state.models[MODEL].queue.rows += 1


def miscount_runs(state: State) -> None:
    state.devices["cpu"].runs += 1


def run_more_than_there_are_slots(state: State) -> None:
    object.__setattr__(state.devices["cpu"].limits, "run_slots", 1)


def run_what_is_not_known(state: State) -> None:
    run = state.models[MODEL].run
    assert run is not None
    state.models[MODEL].runs = [replace(run)]


def run_what_is_not_there(state: State) -> None:
    state.models[MODEL].state = ModelState.RESTORING


def unload_without_a_trace(state: State) -> None:
    state.models[MODEL].state = ModelState.UNLOADED


def offload_what_runs(state: State) -> None:
    state.models[MODEL].state = ModelState.OFFLOADED


def be_evicted_and_stay(state: State) -> None:
    state.models[MODEL].evicted = True


def build_what_is_there(state: State) -> None:
    state.building[MODEL] = None


def lose_a_placed_model(state: State) -> None:
    del state.devices["cpu"].models[MODEL]


def wait_for_no_reason(state: State) -> None:
    state.devices["cpu"].ready.put(ModelKey("nobody", 1), 0.0)


def close_in_one_place_only(state: State) -> None:
    state.models[MODEL].closing = True


def load_what_is_loaded(state: State) -> None:
    state.workers["cpu"].loading = MODEL


def live_in_no_worker(state: State) -> None:
    del state.workers["cpu"].models[MODEL]


def come_up_without_memory(state: State) -> None:
    worker = state.workers["cpu"]
    assert worker.context is not None
    state.devices["cpu"].budget.release(worker.context)
    worker.context = None
    worker.state = WorkerState.STARTING


def leave_a_queue_that_nobody_serves(state: State) -> None:
    idle = state.models[ModelKey("idle", 1)]
    entry = state.entries[99] = Entry(make_request(99, model=idle.key))
    idle.queue.append(entry)


WAYS: list[Callable[[State], None]] = [
    leak_a_lease,
    leak_a_lease_on_the_host,
    lose_a_lease,
    own_a_lease_twice,
    resize_a_lease_behind_its_back,
    let_a_lease_leave_behind_its_back,
    lease_more_of_the_host_than_there_is,
    miscount_what_a_share_holds,
    miscount_what_is_set_aside,
    forget_a_stir,
    forget_a_touch,
    lose_a_request,
    queue_what_nobody_accepted,
    queue_what_runs,
    keep_a_state_of_what_waits,
    let_what_waits_leave,
    go_on_without_a_state,
    keep_running_for_nobody,
    compute_for_nobody,
    leave_with_a_state_that_stays,
    miscount_a_queue,
    miscount_runs,
    run_more_than_there_are_slots,
    run_what_is_not_known,
    run_what_is_not_there,
    unload_without_a_trace,
    offload_what_runs,
    be_evicted_and_stay,
    build_what_is_there,
    lose_a_placed_model,
    wait_for_no_reason,
    close_in_one_place_only,
    load_what_is_loaded,
    live_in_no_worker,
    come_up_without_memory,
    leave_a_queue_that_nobody_serves,
]


@pytest.mark.parametrize("break_it", WAYS)
def test_what_drifted_is_noticed(break_it: Callable[[State], None]) -> None:
    """One model runs, a stepped one runs with another request waiting, and one is not loaded."""
    core = Core(UNGUARDED)
    core.resident()
    core.resident(make_spec("stepped", steps=3, state=5, max_batch_size=1))
    core.register(make_spec("idle"))
    core.ask(1)
    core.ask(2, STEPPED)
    core.ask(3, STEPPED)
    core.scheduler.check_integrity()
    break_it(core.scheduler.state)
    with pytest.raises(AssertionError):
        core.scheduler.check_integrity()
