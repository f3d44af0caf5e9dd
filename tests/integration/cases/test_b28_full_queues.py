"""B28: a full queue refuses at once, however many come, and neither memory nor other models feel it."""

import asyncio
import re
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from moorage_client.channels import Methods
from moorage_protocol import inference as pb
from tests.integration.cases.conftest import SharedServer
from tests.integration.load.callers import Answered, call, channels
from tests.support.after_check import after_check
from tests.support.calls import Call, Failure, request_of, rows_of
from tests.support.polling import eventually
from tests.support.sentinel import percentile, sentinel
from tests.support.toy_models import EXPLICIT, write_python_model

_MODEL = "full"
_PLACES = 4
_WAVE = 10_000
_CALLERS = 20
# As the case says. Undisturbed it is a tenth of that with twenty callers who share two cores with the server.
_REFUSED_WITHIN_S = 0.1
# gRPC has 11 KiB for each call that the server has not taken yet; nothing is to be kept of those that it refused.
_MOST_BYTES_EACH = 16 * 2**10
_MOST_KEPT_BYTES = 32 * 2**20

# Has its worker until a file exists.
_HELD = """
    import os
    import time
    from moorage import Model

    class Held(Model):
        def infer(self, inputs, batch):
            until = batch.requests[0].parameters.get("until")
            while until and not os.path.exists(until):
                time.sleep(0.01)
            return {"y": inputs["x"]}
"""


@pytest.fixture(scope="module", autouse=True)
def models(shared_server: SharedServer) -> Iterator[None]:
    extra = f"[scheduling]\nmax_queue_rows = {_PLACES}\n"
    write_python_model(shared_server.models, _MODEL, _HELD, max_batch_size=1, extra=extra, top=EXPLICIT)
    shared_server.calls.load(_MODEL)
    yield
    shared_server.calls.unload(_MODEL)


@contextmanager
def _full(shared: SharedServer, gate: Path) -> Iterator[None]:
    """During the block one runs and four wait. Behind it they are served, and nothing is left."""
    calls = shared.calls
    first = calls.start(request_of(_MODEL, rows_of(1), parameters={"until": str(gate)}), 60.0)
    try:
        eventually(lambda: shared.running_requests(_MODEL), what="it runs")
        filling = [calls.start(request_of(_MODEL, rows_of(1)), 60.0) for _ in range(_PLACES)]
        eventually(lambda: "4 rows waiting" in calls.index()[_MODEL].reason, what="four wait")
        yield
        assert not [call for call in (first, *filling) if call.is_done]
    finally:
        gate.touch()
    assert not [call for call in (first, *filling) if isinstance(call.outcome(), Failure)]
    eventually(lambda: "waiting" not in calls.index()[_MODEL].reason, within_s=1.0, what="nobody waits")
    after_check(shared.server, calls, shared.baseline)


def _code(one: Call) -> str:
    outcome = one.outcome()
    return outcome.code if isinstance(outcome, Failure) else "OK"


def test_fifty_at_once(shared_server: SharedServer, tmp_path: Path) -> None:
    """One runs, four wait, and the others are told at once when to come back."""
    calls, gate = shared_server.calls, tmp_path / "gate"
    request = request_of(_MODEL, rows_of(1), parameters={"until": str(gate)})
    with sentinel(shared_server.server.grpc) as bystander:
        under_way = [calls.start(request) for _ in range(50)]
        eventually(lambda: sum(one.is_done for one in under_way) == 50 - 1 - _PLACES, what="all others are refused")
        gate.touch()
        outcomes = [one.outcome() for one in under_way]
    refused = [outcome for outcome in outcomes if isinstance(outcome, Failure)]
    assert len(outcomes) - len(refused) == 1 + _PLACES, "one runs, four wait"
    assert {failed.code for failed in refused} == {"RESOURCE_EXHAUSTED"}
    assert all(failed.retry_after_s for failed in refused)
    assert refused[0].figures["limit"] == str(_PLACES)
    assert max(failed.seconds for failed in refused) < _REFUSED_WITHIN_S + max(bystander.seconds)
    after_check(shared_server.server, calls, shared_server.baseline)


def test_ten_thousand_at_once(shared_server: SharedServer, tmp_path: Path) -> None:
    """Each waits for its turn to be refused, and for nothing else: about as long as one after the other would take.

    No sentinel: its calls, too, would wait in this process behind the ten thousand.
    """
    calls, process = shared_server.calls, psutil.Process(shared_server.server.pid)
    with _full(shared_server, tmp_path / "gate"):
        answers, seconds = _flood(shared_server, _MODEL, each=15)
        assert {answer.code for answer in answers} == {"RESOURCE_EXHAUSTED"}
        before_bytes, began_s = process.memory_info().rss, time.monotonic()
        wave = [calls.start(request_of(_MODEL, rows_of(1)), 60.0) for _ in range(_WAVE)]
        codes = Counter(map(_code, wave))
        wave_s = time.monotonic() - began_s
        assert codes == {"RESOURCE_EXHAUSTED": _WAVE}
        assert wave_s < 3 * seconds * _WAVE / len(answers)
        assert _peak_bytes(shared_server) - before_bytes < _WAVE * _MOST_BYTES_EACH
        eventually(lambda: process.memory_info().rss - before_bytes < _MOST_KEPT_BYTES, what="its memory is back")


def _peak_bytes(shared: SharedServer) -> int:
    """The most that was ever resident of the server."""
    status = Path(f"/proc/{shared.server.pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found
    return int(found[1]) * 1024


async def _come_back(methods: Methods, request: pb.ModelInferRequest, times: int) -> list[Answered]:
    return [await call(methods, request, 30.0) for _ in range(times)]


def _flood(shared: SharedServer, model: str, each: int) -> tuple[list[Answered], float]:
    """Twenty callers that come back at once, so many times; their answers, and the seconds that took."""

    async def flood() -> list[Answered]:
        async with channels(shared.server.grpc, _CALLERS) as opened:
            request = request_of(model, rows_of(1))
            loops = [_come_back(methods, request, each) for methods in opened]
            return [answer for answers in await asyncio.gather(*loops) for answer in answers]

    began_s = time.monotonic()
    answers = asyncio.run(flood())
    return answers, time.monotonic() - began_s


def test_the_other_model_feels_nothing(shared_server: SharedServer, tmp_path: Path) -> None:
    """Little more than of as many calls for a model that does not exist, which no queue ever sees."""
    seconds: dict[str, list[float]] = {}
    refused_s: dict[str, float] = {}
    with _full(shared_server, tmp_path / "gate"):
        for model, code in (("no-such-model", "NOT_FOUND"), (_MODEL, "RESOURCE_EXHAUSTED")):
            with sentinel(shared_server.server.grpc) as bystander:
                answers, _ = _flood(shared_server, model, each=60)
            assert {answer.code for answer in answers} == {code}
            refused_s[model] = percentile([answer.took_s for answer in answers], 0.99)
            seconds[model] = bystander.seconds
    assert refused_s[_MODEL] < _REFUSED_WITHIN_S + 3 * refused_s["no-such-model"]
    flooded_s, beside_s = (percentile(seconds[model], 0.5) for model in (_MODEL, "no-such-model"))
    assert flooded_s < 3 * beside_s, f"{flooded_s} s, without a queue {beside_s} s"
