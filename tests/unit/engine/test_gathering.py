"""Company is waited for where it is likely and pays, never by a lone caller."""

from moorage.domain.model import ModelKey
from moorage.domain.request import RunResult
from moorage.engine.gathering import GATHER_S, PEAK_S, QUICK_RUN_NS, Gathering
from moorage.scheduling.actions import Run
from moorage.scheduling.budget import Lease, LeaseKind
from moorage.scheduling.entries import Entry
from tests.support.scheduling import MODEL, make_request

QUICK = RunResult((), 0, 1000, 0)
LONG = RunResult((), 0, QUICK_RUN_NS + 1, 0)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def run_of(count: int, key: ModelKey = MODEL) -> Run:
    entries = tuple(Entry(make_request(number, model=key)) for number in range(count))
    return Run(1, key, "cpu", entries, count, Lease("cpu", "m", LeaseKind.WORKSPACE, 0), 0.0)


def test_an_unknown_model_is_not_held() -> None:
    assert Gathering(Clock()).add(make_request(1), under_way=9)


def test_a_lone_caller_is_never_held() -> None:
    clock = Clock()
    gathering = Gathering(clock)
    for number in range(50):
        assert gathering.add(make_request(number), under_way=1)
        assert len(gathering.take()) == 1
        gathering.answered(run_of(1), QUICK, clock.now)
        clock.now += GATHER_S / 10


def test_callers_that_were_answered_together_are_awaited_together() -> None:
    clock = Clock()
    gathering = Gathering(clock)
    gathering.answered(run_of(3), QUICK, clock.now)
    assert [gathering.add(make_request(number), under_way=3) for number in (1, 2, 3)] == [False, False, True]
    assert [request.request_id for request in gathering.take()] == [1, 2, 3]
    assert not gathering


def test_no_more_are_awaited_than_were_under_way() -> None:
    clock = Clock()
    gathering = Gathering(clock)
    gathering.answered(run_of(8), QUICK, clock.now)
    assert [gathering.add(make_request(number), under_way=2) for number in (1, 2)] == [False, True]


def test_old_answers_and_old_peaks_are_forgotten() -> None:
    clock = Clock()
    gathering = Gathering(clock)
    gathering.answered(run_of(8), QUICK, clock.now)
    clock.now += 3 * GATHER_S
    assert gathering.add(make_request(1), under_way=8)
    gathering.take()
    clock.now += 3 * PEAK_S
    gathering.answered(run_of(8), QUICK, clock.now)
    assert gathering.add(make_request(2), under_way=1)


def test_long_runs_are_not_waited_with() -> None:
    clock = Clock()
    gathering = Gathering(clock)
    gathering.answered(run_of(8), QUICK, clock.now)
    gathering.answered(run_of(8), LONG, clock.now)
    assert gathering.add(make_request(1), under_way=8)


def test_what_is_remembered_is_bounded() -> None:
    clock = Clock()
    gathering = Gathering(clock)
    for _ in range(10_000):
        gathering.answered(run_of(1), QUICK, clock.now)
    assert len(gathering._answers) <= 256
