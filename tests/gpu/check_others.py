"""Another process grows on the card: the server makes itself smaller, goes on answering, and grows again after it."""

import asyncio
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.gpu.asking import ask, eventually, put_all_out
from tests.gpu.card import Card
from tests.gpu.findings import Finding, gib, judged, skipped
from tests.gpu.machine import Machine
from tests.gpu.repository import HEAVY_MODELS
from tests.gpu.serving import Served

_CHECK = "another process grows on the card"
# What is left of the budget of 24 GiB: room for one model of 8 GiB.
_LEFT_GIB = 14.0
_CHUNK_GIB = 1.0
# The monitor looks once a second.
_SEEN_WITHIN_S = 10.0
_PROCESS_LIMIT_S = 60.0


async def check_others(machine: Machine, served: Served, card: Card | None) -> list[Finding]:
    """On a CPU there is nobody to ask what others hold; but the models answer beside the other process there, too."""
    await put_all_out(served)
    before_bytes = (await served.device()).capacity_bytes
    aim_bytes = machine.size_bytes(_LEFT_GIB + _CHUNK_GIB)
    wanted_bytes = _wanted_bytes(machine, card, before_bytes)
    async with _other_process(machine, wanted_bytes) as other:
        taken_bytes = int((await _line(other)).removeprefix("took "))
        began_s = time.monotonic()
        fell = card is None or await eventually(lambda: _is_at_most(served, aim_bytes), _SEEN_WITHIN_S)
        fell_s = time.monotonic() - began_s
        left_bytes = (await served.device()).capacity_bytes
        answers = [await ask(served.client, name) for name in HEAVY_MODELS[:4]]
        beyond_bytes = max(answer.allocated_bytes for answer in answers) + machine.context_bytes - left_bytes
        assert other.stdin is not None
        other.stdin.write(b"\n")
        await _line(other)
    grown_s = time.monotonic()
    grew = await eventually(lambda: _is_at_least(served, before_bytes), _SEEN_WITHIN_S)
    if card is None:
        return [skipped(_CHECK, f"on a CPU nobody tells; {len(answers)} answers beside {gib(taken_bytes)} of another")]
    return [
        judged(
            _CHECK,
            f"took {gib(taken_bytes)}: capacity {gib(before_bytes)} to {gib(left_bytes)} in {fell_s:.1f} s",
            f"at most {gib(aim_bytes)}",
            met=fell,
        ),
        judged("allocated beyond what is left", gib(beyond_bytes), "never above 0", met=beyond_bytes <= 0),
        judged(
            "it lets go",
            f"capacity {gib((await served.device()).capacity_bytes)} after {time.monotonic() - grown_s:.1f} s",
            f"{gib(before_bytes)} again",
            met=grew,
        ),
    ]


def _wanted_bytes(machine: Machine, card: Card | None, capacity_bytes: int) -> int:
    """So much that only _LEFT_GIB remain for the server, which holds a worker's context by now."""
    if card is None:
        return machine.size_bytes(2.0)
    return card.total_bytes - card.used_bytes() + machine.context_bytes - machine.size_bytes(_LEFT_GIB)


async def _is_at_most(served: Served, size_bytes: int) -> bool:
    return (await served.device()).capacity_bytes <= size_bytes


async def _is_at_least(served: Served, size_bytes: int) -> bool:
    return (await served.device()).capacity_bytes >= size_bytes


@asynccontextmanager
async def _other_process(machine: Machine, wanted_bytes: int) -> AsyncIterator[Process]:
    chunk_bytes = machine.size_bytes(_CHUNK_GIB)
    command = ["-P", "-m", "tests.gpu.other_process", machine.device, str(wanted_bytes), str(chunk_bytes)]
    process = await asyncio.create_subprocess_exec(sys.executable, *command, stdin=PIPE, stdout=PIPE)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _line(process: Process) -> str:
    """What it says next. Raises RuntimeError where it ends instead, and TimeoutError."""
    assert process.stdout is not None
    line = await asyncio.wait_for(process.stdout.readline(), _PROCESS_LIMIT_S)
    if not line:
        raise RuntimeError("the other process ended")
    return line.decode().strip()
