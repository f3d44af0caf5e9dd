"""Two runs of one model at once, each on a stream of its own; those of a model of high priority on an urgent one."""

import asyncio
import time

import numpy as np

from moorage_client import Client
from tests.gpu.findings import Finding, judged, skipped
from tests.gpu.machine import Machine
from tests.gpu.repository import TWINS
from tests.gpu.serving import Served

_ROUNDS = 3
_LIMIT_S = 60.0
# Of the time that one alone takes: two after one another take twice as long.
_MOST = 1.5


async def check_instances(machine: Machine, served: Served) -> list[Finding]:
    """Both models, one after the other."""
    findings: list[Finding] = []
    for model, is_urgent in zip(TWINS, (False, True), strict=True):
        findings += await _of_model(machine, served.client, model, is_urgent=is_urgent)
    return findings


async def _of_model(machine: Machine, client: Client, model: str, *, is_urgent: bool) -> list[Finding]:
    await _answers(client, model, 1)  # loads it
    alone_s = min([await _seconds(client, model, 1) for _ in range(_ROUNDS)])
    pair_s = min([await _seconds(client, model, 2) for _ in range(_ROUNDS)])
    times = pair_s / alone_s
    found = [
        judged(
            f"two runs of {model} at once",
            f"{pair_s:.2f} s, one alone {alone_s:.2f} s: {times:.2f} times",
            f"at most {_MOST:g} times",
            met=times <= _MOST,
        )
    ]
    what = f"the streams of {model}"
    if not machine.is_card:
        return [*found, skipped(what, "a CPU has none")]
    streams = await _answers(client, model, 2)
    numbers, priorities = {stream for stream, _ in streams}, {priority for _, priority in streams}
    aim = "two of their own, urgent" if is_urgent else "two of their own"
    met = len(numbers) == 2 and 0 not in numbers and all((priority < 0) == is_urgent for priority in priorities)
    return [*found, judged(what, f"{len(numbers - {0})} of their own, priorities {sorted(priorities)}", aim, met=met)]


async def _seconds(client: Client, model: str, runs: int) -> float:
    began_s = time.monotonic()
    await _answers(client, model, runs)
    return time.monotonic() - began_s


async def _answers(client: Client, model: str, runs: int) -> list[tuple[int, int]]:
    """The streams that so many runs at once were on, and their priorities. Raises AssertionError on another's rows."""
    calls = [client.infer(model, {"x": np.full((1, 1), 7 + run)}, timeout_s=_LIMIT_S) for run in range(runs)]
    answers = await asyncio.gather(*calls)
    assert [int(answer["twice"][0, 0]) for answer in answers] == [2 * (7 + run) for run in range(runs)]
    return [(int(answer["stream"][0, 0]), int(answer["stream_priority"][0, 0])) for answer in answers]
