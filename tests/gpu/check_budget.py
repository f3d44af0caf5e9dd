"""Six models of 8 GiB under a budget of 24 GiB: all answer, nothing runs out of memory, nothing is used unleased."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from moorage_client import DeviceStatus, MoorageClientError
from tests.gpu.asking import Answer, ask
from tests.gpu.findings import Finding, gib, judged, skipped
from tests.gpu.machine import Machine
from tests.gpu.repository import HEAVY_GIB, HEAVY_MODELS, workspace_bytes
from tests.gpu.serving import Served

_ROUNDS = 2


@dataclass
class _Seen:
    """excess_bytes: the most that was ever allocated beyond what was leased, by answers and by snapshots."""

    checksums: dict[str, set[int]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    answers: int = 0
    peak_bytes: int = 0
    excess_bytes: list[int] = field(default_factory=list)
    overdrawn_bytes: int = 0

    def take(self, model: str, answer: Answer) -> None:
        self.answers += 1
        self.checksums.setdefault(model, set()).add(answer.checksum)
        self.peak_bytes = max(self.peak_bytes, answer.peak_bytes)

    def look(self, device: DeviceStatus) -> None:
        self.overdrawn_bytes = max(self.overdrawn_bytes, sum(device.leased_bytes.values()) - device.capacity_bytes)


async def check_budget(machine: Machine, served: Served) -> list[Finding]:
    """One request after the other, each on a model that is not there; then all at once."""
    seen = _Seen()
    watching = asyncio.create_task(_watch(served, seen))
    try:
        await _one_by_one(machine, served, seen)
        await _all_at_once(served, seen)
    finally:
        watching.cancel()
    models = (await served.client.snapshot()).models
    counts = [model.residency_counts for model in models if model.name in HEAVY_MODELS]
    moves = f"{sum(count.evictions for count in counts)} evictions, {sum(count.restores for count in counts)} restores"
    return _findings(machine, seen, moves, sum(count.evictions for count in counts))


async def _one_by_one(machine: Machine, served: Served, seen: _Seen) -> None:
    for model in HEAVY_MODELS * _ROUNDS:
        answer = await ask(served.client, model)
        seen.take(model, answer)
        device = await served.device()
        # The run's own lease has ended since, and nothing else has moved.
        leased_bytes = device.leased_bytes.get("weights", 0) + workspace_bytes(machine)
        seen.excess_bytes.append(answer.allocated_bytes - leased_bytes)


async def _all_at_once(served: Served, seen: _Seen) -> None:
    names = HEAVY_MODELS * _ROUNDS
    results = await asyncio.gather(*(ask(served.client, name) for name in names), return_exceptions=True)
    for name, result in zip(names, results, strict=True):
        if isinstance(result, Answer):
            seen.take(name, result)
        elif isinstance(result, MoorageClientError):
            seen.failures.append(f"{name}: {result}")
        else:
            raise result


async def _watch(served: Served, seen: _Seen) -> None:
    async with aclosing(served.client.watch(0.05)) as snapshots:
        async for snapshot in snapshots:
            seen.look(snapshot.devices[0])


def _findings(machine: Machine, seen: _Seen, moves: str, evictions: int) -> list[Finding]:
    size, budget = gib(machine.size_bytes(HEAVY_GIB)), gib(machine.budget_bytes)
    what = f"{len(HEAVY_MODELS)} models of {size} under {budget}"
    asked = seen.answers + len(seen.failures)
    return [
        judged(
            what,
            f"{seen.answers} of {asked} answered; {moves}{_first(seen.failures)}",
            "all, with evictions",
            met=not seen.failures and evictions > 0,
        ),
        judged(
            "leased beyond capacity",
            gib(max(0, seen.overdrawn_bytes)),
            "never above 0",
            met=seen.overdrawn_bytes <= 0,
        ),
        *_of_the_allocator(machine, seen),
        judged(
            "weights after coming back",
            f"{sum(len(found) == 1 for found in seen.checksums.values())} of {len(HEAVY_MODELS)} with one checksum",
            "all",
            met=len(seen.checksums) == len(HEAVY_MODELS) and all(len(found) == 1 for found in seen.checksums.values()),
        ),
    ]


def _of_the_allocator(machine: Machine, seen: _Seen) -> list[Finding]:
    if not machine.is_card:
        return [skipped("allocated beyond leased", "a CPU's allocator does not tell")]
    room_bytes = machine.budget_bytes - machine.context_bytes
    excess_bytes = max(seen.excess_bytes)
    return [
        judged("allocated beyond leased", f"at most {gib(excess_bytes)}", "never above 0", met=excess_bytes <= 0),
        judged(
            "peak of the worker's allocator",
            f"{gib(seen.peak_bytes)} of {gib(room_bytes)}",
            "within the budget",
            met=seen.peak_bytes <= room_bytes,
        ),
    ]


def _first(failures: Sequence[str]) -> str:
    return f"; first: {failures[0][:100]}" if failures else ""
