"""How fast weights come back from the host, against a plain copy of as much."""

import asyncio
import statistics
import sys

from tests.gpu.asking import ask, model_in, put_all_out
from tests.gpu.findings import Finding, Verdict, judged
from tests.gpu.machine import Machine
from tests.gpu.repository import HEAVY_GIB, HEAVY_MODELS
from tests.gpu.serving import Served

_AIM = 0.8
_SAMPLES = 4
_COPY_LIMIT_S = 60.0
# As long as it takes to be sure; a copy of 8 GiB would only pin memory for longer.
_COPY_GIB = 2.0


async def check_restore(machine: Machine, served: Served) -> list[Finding]:
    """The first answer of a model that is offloaded, less what the same answer takes when it is there."""
    plain = await _plain_rate(machine)
    rates = [await _restore_rate(machine, served) for _ in range(_SAMPLES)]
    share = statistics.median(rates) / plain
    slowest = min(rates)
    figure = f"{statistics.median(rates):.1f} GB/s (slowest {slowest:.1f}) of {plain:.1f}: {share:.2f}"
    if machine.is_card:
        return [judged("restore against a plain pinned copy", figure, f"at least {_AIM}", met=share >= _AIM)]
    return [Finding("restore against a plain copy", figure, "(a card's)", Verdict.TOLD)]


async def _restore_rate(machine: Machine, served: Served) -> float:
    """GB/s of one restore, with room for it."""
    await put_all_out(served)
    snapshot = await served.client.snapshot()
    offloaded = [name for name in HEAVY_MODELS if model_in(snapshot, name).state == "offloaded"]
    assert offloaded, f"nothing is on the host: {[(model.name, model.state) for model in snapshot.models]}"
    name = offloaded[0]
    before = model_in(snapshot, name).residency_counts.restores
    cold = await ask(served.client, name)
    warm_s = statistics.median([(await ask(served.client, name)).took_s for _ in range(3)])
    assert model_in(await served.client.snapshot(), name).residency_counts.restores == before + 1, (
        f"{name}: not restored"
    )
    return machine.size_bytes(HEAVY_GIB) / max(cold.took_s - warm_s, 1e-4) / 1e9


async def _plain_rate(machine: Machine) -> float:
    command = ["-P", "-m", "tests.gpu.plain_copy", machine.device, str(machine.size_bytes(_COPY_GIB))]
    process = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=asyncio.subprocess.PIPE)
    try:
        output, _ = await asyncio.wait_for(process.communicate(), _COPY_LIMIT_S)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        raise RuntimeError(f"the plain copy ended with {process.returncode}")
    return float(output)
