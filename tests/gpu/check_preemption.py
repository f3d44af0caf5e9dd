"""How soon work of priority 1 runs where work of priority 5 computes in steps; and what becomes of the latter."""

import asyncio
import statistics
import time
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from moorage_client import Client
from tests.gpu.asking import eventually, model_in
from tests.gpu.findings import Finding, gib, judged
from tests.gpu.machine import Machine
from tests.gpu.repository import GREEDY_GIB, STATE_GIB, STEPS
from tests.gpu.serving import Served

_REQUESTS = 15
_PAUSE_S = 0.08
_MOST_STEPS = 2.0
_LIMIT_S = 90.0
_X = np.zeros((1, 1), np.int64)


@dataclass(frozen=True, slots=True)
class _Urgent:
    """One request of priority 1: sent, run, answered, by the clock that all processes share."""

    sent_s: float
    began_s: float
    answered_s: float


async def check_preemption(machine: Machine, served: Served) -> list[Finding]:
    """First for a turn alone, then for memory that states hold."""
    await _urgent(served.client, "urgent")
    await _urgent(served.client, "greedy")
    return [*await _for_a_turn(served), *await _for_memory(machine, served)]


async def _for_a_turn(served: Served) -> list[Finding]:
    patient = [asyncio.create_task(_patient(served.client, "slim")) for _ in range(2)]
    await _running(served, "slim")
    urgent: list[_Urgent] = []
    while len(urgent) < _REQUESTS and not patient[0].done():
        urgent.append(await _urgent(served.client, "urgent"))
        await asyncio.sleep(_PAUSE_S)
    steps = sorted({began_s for task in patient for began_s in (await task)[0]})
    step_s = statistics.median(later - earlier for earlier, later in pairwise(steps))
    between = max(sum(one.sent_s < began_s < one.began_s for began_s in steps) for one in urgent)
    latencies = sorted((one.answered_s - one.sent_s) / step_s for one in urgent)
    return [
        judged(
            "steps begun before work of priority 1",
            f"at most {between} in {len(urgent)} requests",
            "at most 1",
            met=between <= 1 and len(urgent) >= 3,
        ),
        judged(
            "its latency, answer included",
            f"median {statistics.median(latencies):.2f}, most {latencies[-1]:.2f} steps of {step_s * 1000:.0f} ms",
            f"median at most {_MOST_STEPS:g}",
            met=statistics.median(latencies) <= _MOST_STEPS,
        ),
    ]


async def _for_memory(machine: Machine, served: Served) -> list[Finding]:
    patient = [asyncio.create_task(_patient(served.client, "patient")) for _ in range(4)]
    await _running(served, "patient")
    urgent = []
    for _ in range(2):
        await asyncio.sleep(0.5)
        urgent.append(await _urgent(served.client, "greedy"))
    intact = [(await task)[1] for task in patient]
    counts = model_in(await served.client.snapshot(), "patient").residency_counts
    took_s = max(one.answered_s - one.sent_s for one in urgent)
    what = f"{gib(machine.size_bytes(GREEDY_GIB))} of states of {gib(machine.size_bytes(STATE_GIB))} give way"
    return [
        judged(
            what,
            f"{counts.preemptions} preemptions, at most {took_s:.2f} s; {sum(intact)} of {len(intact)} intact",
            "some, all intact",
            met=counts.preemptions > 0 and all(intact),
        )
    ]


async def _patient(client: Client, model: str) -> tuple[list[float], bool]:
    """When its steps began, and whether its state was the same at the end."""
    outputs = await client.infer(model, {"x": _X}, timeout_s=_LIMIT_S)
    assert outputs["began"].shape == (1, STEPS)
    return outputs["began"][0].tolist(), bool(outputs["intact"][0, 0])


async def _urgent(client: Client, model: str) -> _Urgent:
    sent_s = time.monotonic()
    outputs = await client.infer(model, {"x": _X}, timeout_s=_LIMIT_S)
    return _Urgent(sent_s, float(outputs["began"][0, 0]), time.monotonic())


async def _running(served: Served, model: str) -> None:
    async def has_states() -> bool:
        return model_in(await served.client.snapshot(), model).leased_bytes.get("state", 0) > 0

    assert await eventually(has_states, _LIMIT_S), f"{model} does not run"
