"""What NVML says the worker holds, beside what the ledger says."""

import numpy as np

from tests.gpu.asking import ask
from tests.gpu.card import Card
from tests.gpu.findings import Finding, gib, judged, skipped, told
from tests.gpu.machine import MIB, Machine
from tests.gpu.repository import HEAVY_MODELS
from tests.gpu.serving import Served

# What runs have cached, and segments that are not quite full.
_SLACK_BYTES = 256 * MIB
_CHECK = "NVML against the ledger"


async def check_ledger(machine: Machine, served: Served, card: Card | None, idle_bytes: int) -> list[Finding]:
    """With the server at rest. idle_bytes: used of the card before the server ran."""
    answer = await ask(served.client, HEAVY_MODELS[0])
    leased_bytes = sum((await served.device()).leased_bytes.values())
    findings = (
        [] if card is None else _of_card(machine, served, card, idle_bytes, (leased_bytes, answer.reserved_bytes))
    )
    taken = await served.client.infer("matmul", {"x": np.zeros((1, 1), np.int64)}, timeout_s=60.0)
    if card is None:
        return [skipped(_CHECK, "a CPU has no NVML")]
    return [*findings, told("first matrix product takes besides", gib(int(taken["taken"][0, 0])))]


def _of_card(
    machine: Machine, served: Served, card: Card, idle_bytes: int, known_bytes: tuple[int, int]
) -> list[Finding]:
    leased_bytes, reserved_bytes = known_bytes
    told_bytes = card.process_bytes(served.worker_pid())
    by = "of the process" if told_bytes is not None else "of the card, less before"
    held_bytes = told_bytes if told_bytes is not None else card.used_bytes() - idle_bytes
    return [
        judged(
            _CHECK,
            f"{gib(held_bytes)} {by}, {gib(leased_bytes)} leased",
            f"at most {gib(_SLACK_BYTES)} above",
            met=held_bytes <= leased_bytes + _SLACK_BYTES,
        ),
        judged(
            "a worker's own context",
            gib(held_bytes - reserved_bytes),
            f"at most {gib(machine.context_bytes)}",
            met=held_bytes - reserved_bytes <= machine.context_bytes,
        ),
    ]
