"""Two workers on one card pass a large workspace back and forth: what a run had is free when the other is given it."""

import asyncio

import numpy as np

from moorage_client import Client, MoorageClientError
from tests.gpu.asking import ANSWER_LIMIT_S
from tests.gpu.card import Card
from tests.gpu.findings import Finding, gib, judged, skipped
from tests.gpu.machine import MIB, Machine
from tests.gpu.repository import PASSED_GIB, PASSERS
from tests.gpu.serving import Served

_ROUNDS = 8
# What each of them may keep cached, and segments that are not quite full.
_SLACK_BYTES = 256 * MIB
_USED = "of the card in use meanwhile"
_X = np.zeros((1, 1), np.int64)


async def check_passing(machine: Machine, served: Served, card: Card | None, idle_bytes: int) -> list[Finding]:
    """First one is alone, and keeps what its runs had; then in turn; then at once. idle_bytes: used before all that."""
    first, second = PASSERS
    in_turn = [first, first, *[second, first] * _ROUNDS]
    used = [await _used_bytes(served.client, name) for name in in_turn]
    used += await asyncio.gather(*[_used_bytes(served.client, name) for name in PASSERS * _ROUNDS])
    had = [size_bytes for size_bytes in used if size_bytes is not None]
    passed_bytes = machine.size_bytes(PASSED_GIB)
    answers = judged(
        f"two workers pass {gib(passed_bytes)} to each other",
        f"{len(had)} of {len(used)} runs answered",
        "all",
        met=len(had) == len(used),
    )
    if card is None:
        return [answers, skipped(_USED, "a CPU has no such figure")]
    most_bytes = max(had, default=0) - idle_bytes
    aim_bytes = passed_bytes + len(PASSERS) * machine.context_bytes + _SLACK_BYTES
    return [
        answers,
        judged(_USED, f"at most {gib(most_bytes)}", f"at most {gib(aim_bytes)}", met=most_bytes <= aim_bytes),
    ]


async def _used_bytes(client: Client, model: str) -> int | None:
    """What all processes used of the card during a run; None where there was no memory for it."""
    try:
        outputs = await client.infer(model, {"x": _X}, timeout_s=ANSWER_LIMIT_S)
    except MoorageClientError:
        return None
    return int(outputs["used"][0, 0])
