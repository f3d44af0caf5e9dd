from collections.abc import Callable

import pytest

from moorage.domain.model import ModelState
from moorage.scheduling.budget import LeaseKind
from moorage.scheduling.queue import Entry
from moorage.scheduling.state import State
from tests.support.core import Core
from tests.support.scheduling import MODEL, make_request


def leak_a_lease(state: State) -> None:
    state.budgets["cpu"].acquire("nobody", LeaseKind.WEIGHTS, 1)


def lose_a_lease(state: State) -> None:
    state.models[MODEL].weights = None


def forget_a_stir(state: State) -> None:
    state.stir("cpu")


def lose_a_request(state: State) -> None:
    state.entries[99] = Entry(make_request(99))


def queue_what_nobody_accepted(state: State) -> None:
    state.models[MODEL].queue.append(Entry(make_request(99)))


def miscount_a_queue(state: State) -> None:
    state.models[MODEL].queue.rows += 1


def unload_without_a_trace(state: State) -> None:
    state.models[MODEL].state = ModelState.UNLOADED


def wait_for_no_reason(state: State) -> None:
    state.short_of_memory["cpu"][MODEL] = None


def close_in_one_place_only(state: State) -> None:
    state.models[MODEL].closing = True


def load_what_is_loaded(state: State) -> None:
    state.workers["cpu"].loading = MODEL


@pytest.mark.parametrize(
    "break_it",
    [
        leak_a_lease,
        lose_a_lease,
        forget_a_stir,
        lose_a_request,
        queue_what_nobody_accepted,
        miscount_a_queue,
        unload_without_a_trace,
        wait_for_no_reason,
        close_in_one_place_only,
        load_what_is_loaded,
    ],
)
def test_what_drifted_is_noticed(break_it: Callable[[State], None]) -> None:
    core = Core()
    core.resident()
    core.scheduler.check_integrity()
    break_it(core.scheduler.state)
    with pytest.raises(AssertionError):
        core.scheduler.check_integrity()
