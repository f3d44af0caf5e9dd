"""Warm-ups: the first request finds a model warm, and a model that fails in its warm-up fails to load."""

import pytest

from moorage_protocol import inference as pb
from tests.integration.cases.conftest import SharedServer
from tests.support.calls import Tensor, output_of, request_of, rows_of
from tests.support.toy_models import EXPLICIT, write_python_model, write_simulated_model

WARM_UP_S = 1.5

_LAZY = f"""
    import time
    from moorage import Model

    class Lazy(Model):
        def load(self, context):
            self.is_warm = False

        def infer(self, inputs, batch):
            if not self.is_warm:
                time.sleep({WARM_UP_S})
            self.is_warm = True
            return {{"y": inputs["x"]}}
"""

_LAZY_STEPS = f"""
    import time
    from moorage import Step, SteppedModel

    class LazySteps(SteppedModel):
        def load(self, context):
            self.is_warm = False

        def start(self, inputs, request):
            return [inputs["x"], 3]

        def step(self, states):
            if not self.is_warm:
                time.sleep({WARM_UP_S})
            self.is_warm = True
            for state in states:
                state[1] -= 1
            return [Step(outputs={{"y": x}}, done=True) if left == 0 else Step() for x, left in states]
"""

# Answers with the texts of its latest run of a warm-up, of which it wants to see all.
_TEXTS = """
    from moorage import Model

    class Texts(Model):
        def load(self, context):
            self.seen = []

        def infer(self, inputs, batch):
            if batch.requests[0].id == "warmup":
                self.seen = inputs["x"]
                return {"y": inputs["x"]}
            return {"y": [b" ".join(self.seen)] * batch.rows}
"""

_FAILS = """
    import torch
    from moorage import Model

    class Fails(Model):
        def infer(self, inputs, batch):
            if batch.rows == 2:
                OUTCOME
            return {"y": inputs["x"]}
"""
_ONE_AND_TWO_ROWS = "[[warmup]]\n[[warmup]]\nrows = 2\n"


@pytest.mark.parametrize(("name", "code"), [("lazy", _LAZY), ("lazy_steps", _LAZY_STEPS)])
@pytest.mark.parametrize(("warmup", "is_quick"), [("", False), ("[[warmup]]\nrows = 2\n", True)])
def test_the_first_request_is_quick(watched: SharedServer, name: str, code: str, warmup: str, is_quick: bool) -> None:
    write_python_model(watched.models, name, code, top=EXPLICIT, extra=warmup)
    watched.calls.load(name)
    first = watched.calls.start(request_of(name, rows_of(7)))
    assert output_of(first.outcome()).tolist() == [[7.0] * 4]
    assert (first.seconds < WARM_UP_S / 2) is is_quick
    watched.calls.unload(name)


def test_texts_are_repeated_over_the_rows(watched: SharedServer) -> None:
    warmup = '[[warmup]]\nrows = 3\ninputs = { x = { values = ["an", "\u00e9lan"] } }'
    write_python_model(watched.models, "texts", _TEXTS, datatype="BYTES", shape="[1]", top=EXPLICIT, extra=warmup)
    watched.calls.load("texts")
    text = Tensor((1, 1), b"\1\0\0\0a", "BYTES")
    answer = watched.calls.infer(request_of("texts", text)).raw_output_contents[0]
    assert answer[4:].decode() == "an \u00e9lan an"
    watched.calls.unload("texts")


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        ("raise ValueError('no table')", "warmup[1] failed: ValueError: no table"),
        ("return {'y': inputs['x'].double()}", "warmup[1] failed: output 'y': expected dtype torch.float32 (FP32)"),
        ("return {'y': inputs['x'][:1]}", "warmup[1] failed: output 'y': expected 2 rows, got 1"),
        ("torch.empty(2**46)", "warmup[1] ran out of memory: RuntimeError: "),
        ("raise SystemExit(3)", "warmup[1] failed: SystemExit: 3"),
    ],
)  # fmt: skip
def test_a_warm_up_that_fails_fails_the_load(watched: SharedServer, outcome: str, reason: str) -> None:
    code = _FAILS.replace("OUTCOME", outcome)
    write_python_model(watched.models, "fails_warm", code, top=EXPLICIT, extra=_ONE_AND_TWO_ROWS)
    load = pb.RepositoryModelLoadRequest(model_name="fails_warm")
    failed = watched.calls.failure(load, method="RepositoryModelLoad")
    assert failed.code == "FAILED_PRECONDITION"
    assert reason in failed.message
    entry = watched.calls.index()["fails_warm"]
    assert entry.state != "READY"
    assert reason in entry.reason
    assert not watched.calls.is_model_ready("fails_warm")
    write_python_model(watched.models, "fails_warm", code, top=EXPLICIT)
    watched.calls.load("fails_warm")
    watched.calls.unload("fails_warm")


def test_a_warm_up_has_no_longer_than_the_load(watched: SharedServer) -> None:
    extra = '[[warmup]]\ncount = 100\n[placement]\nisolation = "dedicated"\n'
    top = f"{EXPLICIT}load_timeout_s = 1.0\n"
    write_simulated_model(watched.models, "warms_for_ever", run_s=10.0, top=top, extra=extra)
    load = pb.RepositoryModelLoadRequest(model_name="warms_for_ever")
    failed = watched.calls.failure(load, method="RepositoryModelLoad")
    assert "not loaded within 1 s" in failed.message
    assert failed.seconds < 3.0


def test_a_warm_up_that_can_not_be_is_told_by_its_key(watched: SharedServer) -> None:
    write_simulated_model(watched.models, "mistaken", top=EXPLICIT, extra="[[warmup]]\nrows = 9")
    failed = watched.calls.failure(pb.RepositoryModelLoadRequest(model_name="mistaken"), method="RepositoryModelLoad")
    assert "warmup[0].rows: expected rows from 1 to max_batch_size = 8, got 9" in failed.message
