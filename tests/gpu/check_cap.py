"""A worker's cap: what a model would take beyond it is refused by its own allocator, and the worker lives on."""

from pathlib import Path

import numpy as np

from moorage.scheduling.events import WorkerUp
from tests.gpu.findings import Finding, gib, judged, skipped
from tests.gpu.machine import MIB, Machine
from tests.gpu.repository import TAKER, code_of
from tests.support.one_worker import NAME, OneWorker, python_spec

_CHECK = "a worker's cap"
_CAP_GIB = 4.0


async def check_cap(machine: Machine, folder: Path) -> list[Finding]:
    """Below the cap, beyond it, and below it again. A CPU has no caps: there it is only asked for what is below."""
    worker = OneWorker()
    worker.pool.start(NAME, machine.device)
    try:
        await worker.next(WorkerUp)
        worker.pool.cap(NAME, machine.size_bytes(_CAP_GIB))
        await worker.load(python_spec(folder, "taker", code_of(TAKER)))
        below, beyond = machine.size_bytes(_CAP_GIB - 1), machine.size_bytes(_CAP_GIB + 1)
        asked = [below, beyond, below] if machine.is_card else [below, below]
        got = [await _takes(worker, size_bytes) for size_bytes in asked]
    finally:
        await worker.pool.close(10.0)
    if not machine.is_card:
        return [skipped(_CHECK, f"a CPU has none; {sum(got)} of {len(got)} runs without")]
    figure = ", ".join(f"{gib(size)} {'had' if had else 'refused'}" for size, had in zip(asked, got, strict=True))
    aim = f"{gib(machine.size_bytes(_CAP_GIB))} at most"
    return [judged(_CHECK, figure, aim, met=got == [True, False, True])]


async def _takes(worker: OneWorker, size_bytes: int) -> bool:
    """Whether a run could take so much."""
    answer = await worker.answer("taker", np.full((1, 4), size_bytes / MIB, np.float32))
    return bool(answer[0] == 1.0)
