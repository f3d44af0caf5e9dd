"""B14: of those who share a run only who is at fault fails, wherever in it that one stands."""

import math
from collections.abc import Iterator

import numpy as np
import pytest

from tests.integration.cases.conftest import SharedServer
from tests.support.calls import Call, Failure, Tensor, output_of, request_of, rows_of
from tests.support.toy_models import EXPLICIT, write_python_model

_TOGETHER = 6
_POISON, _INVALID = 666.0, 667.0

# Answers with how many runs it has had, how many of those failed, and the most rows that a failed one had.
_JUDGE = """
    import torch
    from moorage import InvalidInput, Model

    class Judge(Model):
        def load(self, context):
            self.runs = self.failed = self.most_rows = 0

        def infer(self, inputs, batch):
            x = inputs["x"]
            self.runs += 1
            if (x[:, 0] == 666).any():
                self.failed += 1
                self.most_rows = max(self.most_rows, batch.rows)
                raise RuntimeError("secret detail of the model")
            if (x[:, 0] == 667).any():
                raise InvalidInput("x: expected anything but 667")
            y = x.clone()
            y[:, 1:4] = torch.tensor([self.runs, self.failed, self.most_rows])
            return {"y": y}
"""


@pytest.fixture
def judge(watched: SharedServer) -> Iterator[SharedServer]:
    """Begins a run as soon as six rows wait, so that six callers share one, however slowly they come."""
    extra = f"[batching]\nmax_queue_delay_s = 0.4\nlow_watermark = {_TOGETHER}\n"
    write_python_model(watched.models, "judge", _JUDGE, shape="[-1]", extra=extra, top=EXPLICIT)
    watched.calls.load("judge")
    yield watched
    watched.calls.unload("judge")


def _check_good(values: list[float], under_way: list[Call]) -> None:
    """All are served but the poisoned, after a run that all had shared, and after no more runs than it takes."""
    culprits = values.count(_POISON)
    outcomes = [call.outcome() for call in under_way]
    failures = [outcome for outcome in outcomes if isinstance(outcome, Failure)]
    assert [isinstance(outcome, Failure) for outcome in outcomes] == [value == _POISON for value in values], failures
    assert {failed.code for failed in failures} == {"INTERNAL"}
    assert not [failed for failed in failures if "secret" in failed.message]
    rows = np.array([output_of(outcome)[0] for outcome in outcomes if not isinstance(outcome, Failure)])
    assert rows[:, 0].tolist() == [value for value in values if value != _POISON]
    runs, _, most_rows = rows[:, 1:4].max(axis=0)
    assert most_rows == _TOGETHER, "they did not share a run"
    assert runs <= 1 + culprits * 2 * math.ceil(math.log2(_TOGETHER)), "of halves: two at each level"


@pytest.mark.parametrize("at", [0, 3, 5])
def test_of_eight_in_one_window_only_the_poisoned_one_fails(judge: SharedServer, at: int) -> None:
    """And those of another shape or datatype go apart, or are refused alone."""
    calls = judge.calls
    values = [float(number) for number in range(_TOGETHER)]
    values[at] = _POISON
    under_way = [calls.start(request_of("judge", rows_of(value))) for value in values[:-1]]
    other = calls.start(request_of("judge", Tensor((1, 4), b"\0" * 32, datatype="FP64")))
    under_way.append(calls.start(request_of("judge", rows_of(values[-1]))))
    wider = calls.start(request_of("judge", rows_of(50.0, width=5)))
    _check_good(values, under_way)
    assert output_of(wider.outcome())[:, [0, 4]].tolist() == [[50.0, 50.0]]
    assert other.outcome().code == "INVALID_ARGUMENT"


@pytest.mark.parametrize("culprits", [(0, 5), (0, 1, 2, 3, 4)], ids=str)
def test_several_culprits(judge: SharedServer, culprits: tuple[int, ...]) -> None:
    values = [_POISON if number in culprits else float(number) for number in range(_TOGETHER)]
    _check_good(values, [judge.calls.start(request_of("judge", rows_of(value))) for value in values])


def test_whose_data_is_at_fault_is_told_so_in_the_words_of_the_author(judge: SharedServer) -> None:
    values = [0.0, _INVALID, 2.0, _POISON, 4.0, 5.0]
    outcomes = [call.outcome() for call in [judge.calls.start(request_of("judge", rows_of(value))) for value in values]]
    failures = {number: failed for number, failed in enumerate(outcomes) if isinstance(failed, Failure)}
    assert {number: failed.code for number, failed in failures.items()} == {1: "INVALID_ARGUMENT", 3: "INTERNAL"}
    assert failures[1].message == "model 'judge' refuses the input: x: expected anything but 667"
