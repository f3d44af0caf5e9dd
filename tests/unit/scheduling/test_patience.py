"""Models that could run, and wait for company: when, for how long, and when not."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from moorage.domain.model import BatchingPolicy, ModelSpec, SharePolicy
from moorage.scheduling import events
from moorage.scheduling.batching import pays_to_wait
from moorage.scheduling.ceilings import RowCeiling
from moorage.scheduling.state import DeviceLimits
from tests.support.core import Core
from tests.support.scheduling import MODEL, make_request, make_spec

FIXED_S, PER_ROW_S, LAG_S = 6.0, 1.0, 2.0


def in_a_closed_loop(
    callers: int, core: Core | None = None, batching: BatchingPolicy | None = None, spec: ModelSpec | None = None
) -> Core:
    """Callers were answered thirty times, and came back LAG_S later each time; the last run has just ended."""
    core = core or Core()
    core.resident(spec or make_spec(max_batch_size=8, batching=batching or BatchingPolicy()))
    for run_id in range(1, 31):
        core.now += LAG_S
        first = (run_id - 1) * callers
        requests = (make_request(first + n, arrived_s=core.now, deadline_s=1e6) for n in range(callers))
        core.send(events.RequestsArrived(tuple(requests)))
        core.now += FIXED_S + PER_ROW_S * callers
        core.finish(run_id)
    return core


def cost_s(rows: int) -> float:
    return FIXED_S + PER_ROW_S * rows


def known(rows: int) -> bool:
    return rows > 0


@pytest.mark.parametrize(
    ("waiting", "expected", "wait_s", "pays"),
    [
        (1, 7, 5.9, True),
        (1, 7, 6.1, False),
        (7, 1, 5.9, True),
        (4, 4, 0.0, True),
    ],
)
def test_waiting_pays_as_long_as_a_second_run_would_add(waiting: int, expected: int, wait_s: float, pays: bool) -> None:
    assert pays_to_wait(cost_s, waiting, expected, wait_s, 1.0, is_known=known) is pays


def test_nothing_is_gained_where_cost_is_by_the_row() -> None:
    assert not pays_to_wait(float, 4, 4, 0.1, 1.0, is_known=known)


def test_a_size_that_never_ran_is_tried_unless_that_costs_much() -> None:
    assert pays_to_wait(float, 4, 4, 0.1, 1.0, is_known=lambda rows: rows != 8)
    assert not pays_to_wait(float, 4, 4, 2.1, 1.0, is_known=lambda rows: rows != 8)


def test_requests_of_several_rows_cost_as_such() -> None:
    assert pays_to_wait(cost_s, 1, 1, 5.9, 4.0, is_known=known)


def test_two_groups_become_one_though_two_rows_take_twice_as_long_as_one() -> None:
    """One row and two foretell that four take as long as two runs of two; they take half of that."""
    sizes = sizes_of_runs((15.5, 25.2, 45.5, 50.7), {1: 5.0, 2: 10.5, 3: 11.0, 4: 11.5}, runs=40)
    assert sizes[-20:] == [4] * 20


def sizes_of_runs(starts_s: Sequence[float], took_s: Mapping[int, float], runs: int) -> list[int]:
    """Of the first so many runs. Callers begin at these times, and come back LAG_S / 10 after each answer."""
    core = Core()
    core.resident(make_spec(max_batch_size=8))
    sizes: list[int] = []
    arrivals, ends_s, request_id = list(starts_s), math.inf, 0
    while len(sizes) < runs:
        wake_s = core.scheduler.next_wake_s or math.inf
        core.now = min(ends_s, wake_s, *arrivals)
        if core.now in arrivals:
            arrivals.remove(core.now)
            request_id += 1
            decided = core.ask(request_id)
        elif core.now == ends_s:
            arrivals += [core.now + LAG_S / 10] * sizes[-1]
            ends_s = math.inf
            decided = core.finish(len(sizes))
        else:
            decided = core.send(events.TimeReached())
        for executed in (each for each in decided if each.startswith("execute")):
            sizes.append(len(executed.split()) - 1)
            ends_s = core.now + took_s[sizes[-1]]
    return sizes


def test_a_lone_caller_never_waits() -> None:
    core = in_a_closed_loop(1)
    core.now += LAG_S
    assert core.ask(1000) == ["execute 1000"]


def test_the_first_one_back_waits_for_the_others() -> None:
    core = in_a_closed_loop(3)
    core.now += LAG_S
    assert core.ask(1000) == []
    assert core.ask(1001) == []
    assert core.ask(1002) == ["execute 1000 1001 1002"]


def test_who_does_not_come_back_is_waited_for_only_so_long() -> None:
    core = in_a_closed_loop(3)
    ended_s = core.now
    core.now += LAG_S
    assert core.ask(1000) == []
    wake_s = core.scheduler.next_wake_s
    assert wake_s is not None
    assert ended_s + LAG_S < wake_s < ended_s + 2 * LAG_S
    core.now = wake_s
    assert core.send(events.TimeReached()) == ["execute 1000"]


def test_nobody_waits_for_company_where_others_wait_for_the_device() -> None:
    core = in_a_closed_loop(3, Core.on(DeviceLimits(100, run_slots=1)))
    other, third = core.resident(make_spec("other")), core.resident(make_spec("third"))
    core.now += LAG_S
    assert core.ask(2000, model=other) == ["execute 2000"]
    assert core.ask(2001, model=third) == []
    assert core.ask(1000) == []
    assert not core.scheduler.state.devices["cpu"].gathering
    core.finish(31)
    assert core.finish(32) == ["succeed 2001", "execute 1000"]


def test_another_model_that_wants_to_run_ends_the_wait() -> None:
    core = in_a_closed_loop(3)
    other = core.resident(make_spec("other"))
    core.now += LAG_S
    assert core.ask(1000) == []
    assert core.ask(1001, model=other) == ["execute 1001", "execute 1000"]


@pytest.mark.parametrize(
    ("batching", "rows", "waits_s"),
    [
        (BatchingPolicy(0.0), 1, None),
        (BatchingPolicy(5.0, low_watermark=4), 3, 5.0),
        (BatchingPolicy(5.0, low_watermark=4), 4, None),
        (BatchingPolicy(5.0, preferred_sizes=(2, 4)), 1, 5.0),
        (BatchingPolicy(5.0, preferred_sizes=(2, 4)), 2, None),
        (BatchingPolicy(), 1, None),
    ],
)
def test_a_manifest_says_how_many_rows_to_wait_for(batching: BatchingPolicy, rows: int, waits_s: float | None) -> None:
    core = Core()
    core.resident(make_spec(max_batch_size=8, batching=batching))
    decided = core.ask(1, rows=rows)
    if waits_s is None:
        assert decided == ["execute 1"]
        return
    assert decided == []
    assert core.scheduler.next_wake_s == waits_s
    core.now = waits_s
    assert core.send(events.TimeReached()) == ["execute 1"]


def test_who_said_how_many_are_enough_waits_for_no_more_though_they_are_expected() -> None:
    core = in_a_closed_loop(6, batching=BatchingPolicy(5.0, low_watermark=2))
    core.now += LAG_S
    assert core.ask(1000) == []
    assert core.ask(1001) == ["execute 1000 1001"]


@pytest.mark.parametrize("limit_bytes", [None, 5])
def test_nobody_waits_for_more_than_a_run_can_have(limit_bytes: int | None) -> None:
    """By memory: 1 byte a row; or since a run ran out of it. Else the device would stand idle before every run."""
    core = in_a_closed_loop(8, spec=make_spec(max_batch_size=8, per_row=1))
    if limit_bytes is None:
        core.model().ceiling = ceiling = RowCeiling()
        ceiling.ran_out(10, core.now)
    else:
        core.send(events.ShareChanged(MODEL, SharePolicy(limit_bytes=limit_bytes)))
    core.now += LAG_S / 2
    for number in range(4):
        assert core.ask(1000 + number) == []
    assert core.ask(1004) == ["execute 1000 1001 1002 1003 1004"]


@pytest.mark.parametrize("later", [{"deadline_s": 10.0}, {"priority": 1}])
def test_the_oldest_counts_the_delay_whoever_goes_first(later: dict[str, Any]) -> None:
    core = Core()
    core.resident(make_spec(max_batch_size=8, batching=BatchingPolicy(5.0, low_watermark=8)))
    core.arrive(make_request(1, deadline_s=1e6))
    core.now = 4.0
    core.arrive(make_request(2, arrived_s=4.0, **{"deadline_s": 1e6, **later}))
    core.now = 5.0
    assert core.send(events.TimeReached()) == ["execute 2 1"]


def test_the_oldest_counts_the_delay() -> None:
    core = Core()
    core.resident(make_spec(max_batch_size=8, batching=BatchingPolicy(5.0, low_watermark=4)))
    core.ask(1)
    core.now = 4.0
    core.ask(2)
    core.now = 5.0
    assert core.send(events.TimeReached()) == ["execute 1 2"]


def test_a_run_begins_early_enough_for_a_deadline() -> None:
    core = Core()
    core.resident(make_spec(max_batch_size=8, batching=BatchingPolicy(60.0, low_watermark=4)))
    core.arrive(make_request(1, deadline_s=10.0))
    assert core.scheduler.next_wake_s == pytest.approx(9.99)
    core.arrive(make_request(2, deadline_s=3.0))
    assert core.scheduler.next_wake_s == pytest.approx(2.99)
    core.now = 2.99
    assert core.send(events.TimeReached()) == ["execute 2 1"]


def test_a_run_takes_the_largest_preferred_size_that_it_fills() -> None:
    core = Core()
    core.resident(make_spec(max_batch_size=8, batching=BatchingPolicy(5.0, preferred_sizes=(2, 4))))
    together = tuple(make_request(number) for number in range(1, 8))
    assert core.send(events.RequestsArrived(together)) == ["execute 1 2 3 4"]
    assert core.finish(1) == ["succeed 1 2 3 4", "execute 5 6"]


def test_a_model_that_waits_for_company_can_be_cancelled_and_unloaded() -> None:
    core = Core()
    core.resident(make_spec(max_batch_size=8, batching=BatchingPolicy(5.0, low_watermark=4)))
    core.ask(1)
    core.cancel(1)
    assert not core.scheduler.state.devices["cpu"].gathering
    core.ask(2)
    assert core.unload() == ["execute 2"], "there is nobody to wait for"
