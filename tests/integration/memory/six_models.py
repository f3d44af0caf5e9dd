"""Six models of 64 MiB share 224 MiB, and 16 clients want all of them. By hand, 3,000 requests in both variants:

python -m tests.integration.memory.six_models [REQUESTS]

Exit code 1 where anything is not as it should be.
"""

import asyncio
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
from numpy.typing import NDArray

from moorage_client import Client, ModelStatus, Snapshot, SyncClient
from moorage_client.tensors import Tensor
from tests.support.memory_models import BLOCKS, MIB, SIDE, weights_of_blocks, write_blocks
from tests.support.memory_watch import settled_resident_bytes, watching_ledger, watching_resident
from tests.support.running_server import RunningServer, running_server
from tests.support.toy_models import ECHO, write_python_model

BUDGET_BYTES = 224 * MIB
NAMES = ("first", "second", "third", "fourth", "fifth", "sixth")  # by how often they are wanted
CLIENTS = 16
SOME_WARMING = 32
BESIDE_THE_BUDGET = 1.15  # of the budget: what the worker may take beside its own, as the system counts it
VARIANTS: tuple[tuple[str, ...], ...] = ((), (NAMES[1], NAMES[5]))  # whose models are of priority 1
_PATIENCE_S = 60.0


@dataclass(frozen=True)
class Ask:
    """One request: to the model with this index in NAMES, for a matrix and a vector."""

    model: int
    block: int
    x: NDArray[np.float32]


@dataclass(frozen=True)
class Outcome:
    """What a trial showed.

    seconds: of all requests together. latencies_s: of each model's requests. wrong: answers that were not as computed
    here. most_leased_bytes: as any snapshot told. base_bytes, peak_bytes: of the worker, before and at the most.
    """

    seconds: float
    latencies_s: dict[str, list[float]]
    wrong: int
    snapshots: int
    over_budget: int
    most_leased_bytes: int
    base_bytes: int
    peak_bytes: int
    samples: int
    last: Snapshot

    def problems(self, requests: int) -> list[str]:
        """What is not as it should be, of a trial of so many requests."""
        served = {name: len(latencies_s) for name, latencies_s in self.latencies_s.items()}
        above_bytes = self.peak_bytes - self.base_bytes
        counts = {model.name: model.residency_counts for model in self.last.models if model.name in NAMES}
        evictions = sum(one.evictions for one in counts.values())
        reloaded = [name for name, one in counts.items() if one.loads != 1]
        found = {
            f"{self.wrong} answers are wrong": self.wrong > 0,
            f"{sum(served.values())} of {requests} requests served": sum(served.values()) != requests,
            f"a model was never asked: {served}": not all(served.values()),
            f"over budget in {self.over_budget} looks": self.over_budget > 0,
            f"{self.most_leased_bytes} bytes leased": self.most_leased_bytes > BUDGET_BYTES,
            f"the worker took {above_bytes} bytes": above_bytes > BESIDE_THE_BUDGET * BUDGET_BYTES,
            f"unloaded, where they should have been offloaded: {reloaded}": bool(reloaded),
            f"only {evictions} evictions of {len(counts)} models": evictions < len(NAMES) or len(counts) < len(NAMES),
        }
        return [what for what, is_so in found.items() if is_so]

    def report(self) -> str:
        """The figures, for people."""
        count = sum(map(len, self.latencies_s.values()))
        above_bytes = self.peak_bytes - self.base_bytes
        lines = [
            f"{count} requests in {self.seconds:.1f} s ({count / self.seconds:.0f}/s), {self.wrong} wrong",
            f"ledger: at most {self.most_leased_bytes / MIB:.1f} of {BUDGET_BYTES / MIB:g} MiB, {self.snapshots} looks",
            f"worker: {self.base_bytes / MIB:.1f} MiB, and at most {above_bytes / MIB:.1f} MiB above that"
            f" ({above_bytes / BUDGET_BYTES:.1%} of the budget), {self.samples} looks",
        ]
        lines += [self._line(model) for model in self.last.models if model.name in self.latencies_s]
        return "\n".join(lines)

    def _line(self, model: ModelStatus) -> str:
        latencies_s, counts = self.latencies_s[model.name], model.residency_counts
        median_ms, p99_ms = np.percentile(latencies_s, [50, 99]) * 1000
        return (
            f"{model.name:7} priority {model.policy.priority}: {len(latencies_s):5} served,"
            f" p50 {median_ms:6.1f} ms, p99 {p99_ms:6.1f} ms;"
            f" {counts.loads} loads, {counts.evictions} evictions, {counts.restores} restores"
        )


def traffic(requests: int, seed: int = 0) -> list[Ask]:
    """By Zipf's law: the second model is wanted half as often as the first, the third a third as often."""
    random = np.random.default_rng(seed)
    weights = 1 / np.arange(1, len(NAMES) + 1)
    models = random.choice(len(NAMES), requests, p=weights / weights.sum())
    return [Ask(int(model), int(random.integers(BLOCKS)), _vector(random)) for model in models]


def _vector(random: np.random.Generator) -> NDArray[np.float32]:
    return random.standard_normal(SIDE, np.float32)


def try_six_models(folder: Path, requests: int, first_priority: tuple[str, ...] = ()) -> Outcome:
    """Serve them all. Raises MoorageClientError where any request fails. first_priority: models of priority 1."""
    for seed, name in enumerate(NAMES):
        write_blocks(folder / "models", name, seed=seed, priority=1 if name in first_priority else 3)
    write_python_model(folder / "models", "echo", ECHO)
    variables = {"MOORAGE_SERVER__FOOTPRINTS": "off"}
    with running_server(folder / "models", folder, budget=f"{BUDGET_BYTES} B", environment=variables) as server:
        base_bytes, worker = _warmed(server)
        references = [weights_of_blocks(seed) for seed in range(len(NAMES))]
        with watching_ledger(server.grpc) as ledger, watching_resident(worker) as resident:
            answers, seconds = asyncio.run(_ask_all(server.grpc, iter(traffic(requests))))
        with SyncClient(server.grpc) as client:
            last = client.snapshot()
        assert server.workers() == [worker], "the worker was replaced"
    latencies_s: dict[str, list[float]] = {name: [] for name in NAMES}
    for ask, _, latency_s in answers:
        latencies_s[NAMES[ask.model]].append(latency_s)
    return Outcome(
        seconds=seconds,
        latencies_s=latencies_s,
        wrong=sum(not _is_right(references, ask, y) for ask, y, _ in answers),
        snapshots=len(ledger.snapshots),
        over_budget=len(ledger.over_capacity("cpu")),
        most_leased_bytes=ledger.most_leased_bytes("cpu"),
        base_bytes=base_bytes,
        peak_bytes=resident.peak_bytes,
        samples=resident.samples,
        last=last,
    )


def _warmed(server: RunningServer) -> tuple[int, psutil.Process]:
    """The worker, and what it takes when torch is there and has computed, but none of the models is."""
    with SyncClient(server.grpc) as client:
        client.wait_until_ready(timeout_s=50.0)
        for _ in range(SOME_WARMING):
            client.infer("echo", {"x": np.ones((8, 4), np.float32)})
    (worker,) = server.workers()
    return settled_resident_bytes(worker), worker


Answer = tuple[Ask, NDArray[np.float32], float]


async def _ask_all(target: str, asks: Iterator[Ask]) -> tuple[list[Answer], float]:
    """Every client asks the next question as soon as its last is answered."""
    answers: list[Answer] = []
    began_s = time.perf_counter()
    async with Client(target, attempts=1) as client, asyncio.TaskGroup() as tasks:
        for _ in range(CLIENTS):
            tasks.create_task(_ask_on(client, asks, answers))
    return answers, time.perf_counter() - began_s


async def _ask_on(client: Client, asks: Iterator[Ask], answers: list[Answer]) -> None:
    for ask in asks:
        inputs: dict[str, Tensor] = {"block": np.array([[ask.block]], np.int64), "x": ask.x[None]}
        began_s = time.perf_counter()
        outputs = await client.infer(NAMES[ask.model], inputs, timeout_s=_PATIENCE_S)
        answers.append((ask, outputs["y"][0].astype(np.float32), time.perf_counter() - began_s))


def _is_right(references: list[NDArray[np.float32]], ask: Ask, y: NDArray[np.float32]) -> bool:
    return bool(np.allclose(y, references[ask.model][ask.block] @ ask.x, rtol=1e-4, atol=1e-3))


def main() -> int:
    requests = int(sys.argv[1]) if len(sys.argv) > 1 else 3000
    problems: list[str] = []
    for first_priority in VARIANTS:
        with tempfile.TemporaryDirectory() as folder:
            outcome = try_six_models(Path(folder), requests, first_priority)
        problems += outcome.problems(requests)
        sys.stdout.write(f"{outcome.report()}\n\n")
    sys.stdout.write("".join(f"WRONG: {problem}\n" for problem in problems) or "all as it should be\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
