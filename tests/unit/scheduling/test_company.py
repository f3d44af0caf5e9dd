"""Whether those who were answered come back, and how soon."""

from random import Random

import pytest

from moorage.scheduling.company import Company

RUN_S = 10.0


def answer(company: Company, now: float, callers: int, lags_s: list[float], *, times: int) -> float:
    """So many runs, after each of which callers come back with these lags; the time at the end of the last one."""
    for _ in range(times):
        company.answered(callers, RUN_S, now)
        for lag_s in lags_s:
            company.arrived(now + lag_s)
        now += RUN_S
    company.answered(callers, RUN_S, now)
    return now


def test_nobody_is_expected_who_was_never_seen_to_come_back() -> None:
    company = Company()
    assert company.expected() == 0
    company.answered(4, RUN_S, 0.0)
    assert company.expected() == 0


def test_callers_in_a_closed_loop_are_expected_back() -> None:
    company = Company()
    now = answer(company, 0.0, 4, [0.5, 0.6, 0.7, 1.0], times=30)
    assert company.expected() == 4
    assert company.likely_s - now == pytest.approx(1.0, rel=0.01)
    assert now + 1.0 < company.until_s < now + 1.5
    company.arrived(now + 0.5)
    company.arrived(now + 0.6)
    assert company.expected() == 2


def test_who_leaves_is_not_waited_for_again_and_again() -> None:
    company = Company()
    now = answer(company, 0.0, 4, [1.0] * 4, times=30)
    answer(company, now, 4, [], times=2)
    assert company.expected() == 0


def test_a_straggler_whose_run_ends_meanwhile_is_expected_with_the_others() -> None:
    """It ran by itself while they were on their way: else it would forget them, and the batch be two from then on."""
    company = Company()
    now = answer(company, 0.0, 4, [1.0] * 4, times=30)
    company.answered(1, 0.3, now + 0.3)
    assert company.expected() == 5
    assert company.likely_s - now == pytest.approx(1.0, rel=0.01)
    for came in range(1, 6):
        company.arrived(now + 0.5 + came / 10)
        assert company.expected() == 5 - came
    company.answered(2, RUN_S, now + RUN_S)
    assert company.expected() == 2, "what was waited for is over"


def test_once_all_came_back_all_are_expected_to() -> None:
    company = Company()
    now = answer(company, 0.0, 30, [1.0] * 30, times=9)
    assert company.expected() == 30
    for _ in range(27):
        company.arrived(now + 1.0)
    company.answered(27, RUN_S, now + RUN_S)
    assert company.expected() == 24, "as few as the last time"


def test_who_comes_only_after_longer_than_a_run_does_not_count() -> None:
    company = Company()
    answer(company, 0.0, 2, [RUN_S + 1, RUN_S + 2], times=30)
    assert company.expected() == 0


@pytest.mark.parametrize("rate_per_run", [0.3, 1.0, 2.0, 3.0])
def test_random_arrivals_are_not_taken_for_a_closed_loop(rate_per_run: float) -> None:
    """Runs without a pause, each of all who came during the one before."""
    random, company, now, expected = Random(1), Company(), 0.0, 0
    arrival_s, waiting = 0.0, 1
    for _ in range(1000):
        callers, waiting = max(1, waiting), 0
        now += RUN_S
        while arrival_s < now:
            company.arrived(arrival_s)
            waiting += 1
            arrival_s += random.expovariate(rate_per_run / RUN_S)
        company.answered(callers, RUN_S, now)
        expected += company.expected() > 0
    assert expected < 300
