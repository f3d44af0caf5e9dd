import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.domain.model import RatePolicy
from moorage.scheduling.rates import RateLimit


def limited(rate: RateLimit, rows: int, now: float) -> float | None:
    """Seconds after which a refused request may come again; None where it was let through."""
    error = rate.refusal(rows, now)
    return None if error is None else error.retry_after_s


def test_as_many_as_come_in_the_burst_may_come_at_once_and_then_so_many_per_second() -> None:
    rate = RateLimit("m", RatePolicy(requests_per_s=10, burst_s=0.5))
    assert [limited(rate, 1, 0.0) for _ in range(5)] == [None] * 5
    assert limited(rate, 1, 0.0) == pytest.approx(0.1)
    assert limited(rate, 1, 0.05) == pytest.approx(0.05)
    assert limited(rate, 1, 0.1) is None
    assert limited(rate, 1, 0.1) == pytest.approx(0.1)


def test_rows_are_limited_too_and_a_request_that_is_refused_for_one_counts_for_neither() -> None:
    rate = RateLimit("m", RatePolicy(requests_per_s=2, rows_per_s=10))
    assert limited(rate, 10, 0.0) is None
    error = rate.refusal(5, 0.0)
    assert error is not None
    assert (error.unit, error.limit_per_s) == ("rows", 10)
    assert error.retry_after_s == pytest.approx(0.5)
    assert limited(rate, 5, 0.5) is None


def test_where_both_lack_the_one_that_lacks_longest_is_told() -> None:
    rate = RateLimit("m", RatePolicy(requests_per_s=1, rows_per_s=10))
    assert limited(rate, 100, 0.0) is None
    error = rate.refusal(10, 0.0)
    assert error is not None
    assert (error.unit, error.limit_per_s) == ("rows", 10)
    assert error.retry_after_s == pytest.approx(10.0)
    assert limited(rate, 10, 10.0) is None
    error = rate.refusal(1, 10.0)
    assert error is not None
    assert error.unit == "requests"
    assert error.retry_after_s == pytest.approx(1.0)


@given(st.lists(st.tuples(st.floats(0, 3), st.integers(1, 40)), min_size=1, max_size=30))
def test_who_comes_again_when_told_is_let_through(arrivals: list[tuple[float, int]]) -> None:
    rate = RateLimit("m", RatePolicy(requests_per_s=1, rows_per_s=10, burst_s=1.5))
    now = 0.0
    for pause_s, rows in arrivals:
        now += pause_s
        retry_after_s = limited(rate, rows, now)
        if retry_after_s is not None:
            now += retry_after_s + 1e-6
            assert limited(rate, rows, now) is None


def test_a_request_of_more_rows_than_the_burst_waits_for_a_full_bucket_and_leaves_a_debt() -> None:
    rate = RateLimit("m", RatePolicy(rows_per_s=10))
    assert limited(rate, 40, 0.0) is None
    assert limited(rate, 1, 0.0) == pytest.approx(3.1)
    assert limited(rate, 40, 3.9) == pytest.approx(0.1)
    assert limited(rate, 40, 4.0) is None


@given(st.lists(st.tuples(st.floats(0, 1), st.integers(1, 20)), min_size=1, max_size=100))
def test_over_any_time_no_more_goes_through_than_rate_burst_and_one_request(arrivals: list[tuple[float, int]]) -> None:
    rate = RateLimit("m", RatePolicy(rows_per_s=10, burst_s=0.3))
    now, passed = 0.0, []
    for pause_s, rows in arrivals:
        now += pause_s
        if limited(rate, rows, now) is None:
            passed.append((now, rows))
    for start, (since_s, _) in enumerate(passed):
        for end in range(start, len(passed)):
            rows = sum(rows for _, rows in passed[start : end + 1])
            assert rows <= 10 * (passed[end][0] - since_s) + 3 + max(rows for _, rows in passed[start : end + 1]) + 1e-6
