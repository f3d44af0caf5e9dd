"""How often a model is asked for, against the whole list of its uses."""

from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.scheduling.usage import USES_KEPT, Usage

gaps = st.lists(st.floats(0.0, 1e4), max_size=30)


def used(moments_s: list[float], remembered_per_s: float = 0.0) -> Usage:
    usage = Usage(remembered_per_s)
    for moment_s in moments_s:
        usage.note(moment_s)
    return usage


@settings(max_examples=300, deadline=None)
@given(gaps=gaps, later_s=st.floats(0.0, 1e4))
def test_the_rate_is_that_of_the_latest_uses_until_now(gaps: list[float], later_s: float) -> None:
    moments_s = list(accumulate(gaps))
    latest = moments_s[-USES_KEPT:]
    usage = used(moments_s, remembered_per_s=0.25)
    now = (latest[-1] if latest else 0.0) + later_s
    expected = len(latest) / max(now - latest[0], 1e-3) if latest else 0.25
    assert usage.per_s(now) == pytest.approx(expected)
    assert usage.last_s == (latest[-1] if latest else float("-inf"))


@settings(max_examples=300, deadline=None)
@given(gaps=gaps, later_s=st.floats(0.0, 1e4), still_later_s=st.floats(0.0, 1e4))
def test_it_falls_while_nothing_comes(gaps: list[float], later_s: float, still_later_s: float) -> None:
    moments_s = list(accumulate(gaps))
    usage = used(moments_s)
    now = (moments_s[-1] if moments_s else 0.0) + later_s
    assert usage.per_s(now + still_later_s) <= usage.per_s(now)


@settings(max_examples=200, deadline=None)
@given(gaps=st.lists(st.floats(0.01, 1e4), min_size=1, max_size=30), factor=st.floats(1.5, 10.0))
def test_whoever_is_asked_for_more_often_has_the_higher_rate(gaps: list[float], factor: float) -> None:
    often, seldom = list(accumulate(gaps)), list(accumulate(gap * factor for gap in gaps))
    assert used(often).per_s(often[-1] + 1.0) >= used(seldom).per_s(seldom[-1] + 1.0) * (1 - 1e-9)
