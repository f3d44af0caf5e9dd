"""Callers who share runs: each gets exactly its own rows or its own error, whatever becomes of the others.

B13, B14 and B16.
"""

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.integration.cases.conftest import SharedServer
from tests.support.calls import Call, Calls, Failure, Tensor, output_of, request_of, rows_of
from tests.support.polling import eventually
from tests.support.toy_models import EXPLICIT, write_python_model

_MOST_ROWS = 8
_POISON = 666.0

# Each row comes back with how many rows its run had. It waits for company, and takes a while.
_MIRROR = """
    import time
    import torch
    from moorage import Model

    class Mirror(Model):
        def infer(self, inputs, batch):
            time.sleep(0.002)
            x = inputs["x"]
            if (x == 666).any():
                raise RuntimeError("secret detail of the model")
            y = torch.zeros_like(x)
            y[:, 0] = x[:, 0] * 2 + 1
            y[:, 1] = batch.rows
            return {"y": y}
"""


@pytest.fixture(scope="module", autouse=True)
def models(shared_server: SharedServer) -> None:
    waits = "[batching]\nmax_queue_delay_s = 0.02\nlow_watermark = 8\n[scheduling]\nmax_queue_rows = 4096\n"
    for name in ("mirror", "mirror_any"):
        shape = "[4]" if name == "mirror" else "[-1]"
        write_python_model(
            shared_server.models, name, _MIRROR, max_batch_size=_MOST_ROWS, shape=shape, extra=waits, top=EXPLICIT
        )
        shared_server.calls.load(name)


@dataclass(frozen=True)
class Wish:
    """One caller. gone_s: when it cancels. within_s: its deadline. pause_s: before the next one calls."""

    rows: int
    poisoned: bool
    gone_s: float | None
    within_s: float
    pause_s: float


wishes = st.lists(
    st.builds(
        Wish,
        rows=st.integers(1, _MOST_ROWS),
        poisoned=st.sampled_from([False] * 7 + [True]),
        gone_s=st.sampled_from([None, None, None, 0.0, 0.005, 0.02, 0.04]),
        within_s=st.sampled_from([10.0, 10.0, 10.0, 0.03, 0.005]),
        pause_s=st.sampled_from([0.0, 0.0, 0.001, 0.01]),
    ),
    min_size=1,
    max_size=24,
)


def _values(number: int, wish: Wish) -> list[float]:
    values = [1000.0 * number + row for row in range(wish.rows)]
    if wish.poisoned:
        values[number % wish.rows] = _POISON
    return values


def _own_rows(outcome: Any, values: Sequence[float]) -> None:
    output = output_of(outcome)
    np.testing.assert_array_equal(output[:, 0], [value * 2 + 1 for value in values])
    assert output[:, 1].max() <= _MOST_ROWS


def _wish_all(calls: Calls, asked: Sequence[Wish]) -> list[Any]:
    """Everybody's outcome."""
    began: list[Call] = []
    goes: list[tuple[float, Call]] = []
    for number, wish in enumerate(asked):
        call = calls.start(request_of("mirror", rows_of(*_values(number, wish))), wish.within_s)
        began.append(call)
        if wish.gone_s is not None:
            goes.append((time.monotonic() + wish.gone_s, call))
        time.sleep(wish.pause_s)
    for at_s, call in sorted(goes, key=lambda item: item[0]):
        time.sleep(max(0.0, at_s - time.monotonic()))
        call.cancel()
    outcomes: list[Any] = []
    for call in began:
        try:
            outcomes.append(call.outcome())
        except Exception:  # cancelled on this side
            outcomes.append(None)
    return outcomes


@settings(max_examples=60, deadline=None)
@given(wishes)
def test_each_gets_its_own_rows_or_its_own_error(shared_server: SharedServer, asked: list[Wish]) -> None:
    for number, outcome in enumerate(_wish_all(shared_server.calls, asked)):
        wish = asked[number]
        if outcome is None:
            assert wish.gone_s is not None
        elif isinstance(outcome, Failure):
            allowed = {"INTERNAL"} if wish.poisoned else set()
            allowed |= {"DEADLINE_EXCEEDED"} if wish.within_s < 1.0 else set()
            allowed |= {"CANCELLED"} if wish.gone_s is not None else set()
            assert outcome.code in allowed, f"{wish} got {outcome}"
            assert "secret" not in outcome.message
        else:
            assert not wish.poisoned
            _own_rows(outcome, _values(number, wish))


@pytest.mark.parametrize("seed", range(50))
def test_those_who_leave_cost_the_others_nothing(shared_server: SharedServer, seed: int) -> None:
    """A hundred go while they wait, while they are computed, and while they are answered."""
    calls, chance = shared_server.calls, random.Random(seed)
    leaving = [calls.start(request_of("mirror", rows_of(float(number)))) for number in range(100)]
    staying = [calls.start(request_of("mirror", rows_of(float(number), 7.0))) for number in range(20)]
    began_s = time.monotonic()
    for at_s, call in sorted(((chance.uniform(0, 0.04), call) for call in leaving), key=lambda item: item[0]):
        time.sleep(max(0.0, began_s + at_s - time.monotonic()))
        call.cancel()
    for number, call in enumerate(staying):
        _own_rows(call.outcome(), [float(number), 7.0])


def test_who_can_not_be_judged_is_refused_alone(watched: SharedServer) -> None:
    calls = watched.calls
    odd = [
        request_of("mirror", Tensor((0, 4), b"")),
        request_of("mirror", rows_of(1), parameters={"priority": "high"}),
        request_of("mirror", rows_of(1), parameters={"timeout": -1}),
        request_of("mirror", rows_of(*range(_MOST_ROWS + 1))),
    ]
    normal = [calls.start(request_of("mirror", rows_of(float(number)))) for number in range(20)]
    for request in odd:
        failed = calls.failure(request)
        assert failed.code == "INVALID_ARGUMENT", failed
        assert failed.seconds < 0.5
    normal += [calls.start(request_of("mirror", rows_of(float(number)))) for number in range(20)]
    for number, call in enumerate(normal):
        _own_rows(call.outcome(), [float(number % 20)])


def test_of_eight_in_one_window_only_the_poisoned_one_fails(watched: SharedServer) -> None:
    """And those of another shape or datatype go apart, or are refused alone."""
    calls = watched.calls
    good = [calls.start(request_of("mirror_any", rows_of(float(number)))) for number in range(5)]
    poisoned = calls.start(request_of("mirror_any", rows_of(_POISON)))
    wider = calls.start(request_of("mirror_any", rows_of(5.0, width=6)))
    other = calls.start(request_of("mirror_any", Tensor((1, 4), b"\0" * 32, datatype="FP64")))
    for number, call in enumerate(good):
        _own_rows(call.outcome(), [float(number)])
    _own_rows(wider.outcome(), [5.0])
    assert (poisoned.outcome().code, other.outcome().code) == ("INTERNAL", "INVALID_ARGUMENT")


@pytest.mark.parametrize("sizes", [[5] * 10, [8], [1, 7] * 10, [3] * 16, [8, 1, 8, 1]])
def test_rows_are_counted_and_not_requests(watched: SharedServer, sizes: list[int]) -> None:
    calls = watched.calls
    under_way = [calls.start(request_of("mirror", rows_of(*map(float, range(size))))) for size in sizes]
    for size, call in zip(sizes, under_way, strict=True):
        _own_rows(call.outcome(), list(map(float, range(size))))


def test_more_rows_than_the_limit_are_refused_at_once_with_the_limit(watched: SharedServer) -> None:
    failed = watched.calls.failure(request_of("mirror", rows_of(*map(float, range(9)))))
    assert failed.code == "INVALID_ARGUMENT"
    assert "8" in failed.message
    assert "9" in failed.message


def test_nothing_is_left_when_all_have_gone(shared_server: SharedServer) -> None:
    calls = shared_server.calls
    under_way = [calls.start(request_of("mirror", rows_of(1.0))) for _ in range(200)]
    for call in under_way:
        call.cancel()
    eventually(lambda: "waiting" not in calls.index()["mirror"].reason, within_s=2.0, what="nobody waits")
    assert not isinstance(calls.start(request_of("mirror", rows_of(1.0))).outcome(), Failure)
