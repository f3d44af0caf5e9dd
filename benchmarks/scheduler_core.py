"""What the scheduling core costs per request, in microseconds: `python -m benchmarks.scheduler_core`.

One request is arrive -> Execute -> RunFinished -> Succeed, with some models in memory and some requests waiting. Under
pressure half of the models fit, so most requests bring one back and put another out: then `evictions` is how many there
are per request, and `us each` is all that was spent, divided by them. CPU time, not wall time. Cases are taken in turn,
round after round, and the fastest round of each counts, as all else is noise of the machine. Ratios are to REFERENCE.
"""

import argparse
import gc
import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Column, Table

from benchmarks.scheduler_world import World
from moorage.domain.request import InferenceRequest


@dataclass(frozen=True, slots=True)
class Case:
    """build: a world with its models in memory. serve: sends requests to it and sees them answered."""

    name: str
    build: Callable[[], World]
    serve: Callable[[World, Iterable[InferenceRequest]], None]


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one round: microseconds of CPU, and how many evictions."""

    per_request_us: float
    evictions_per_request: float

    @property
    def per_eviction_us(self) -> float | None:
        """What an eviction costs with all that hangs on it; None where there are none."""
        return self.per_request_us / self.evictions_per_request if self.evictions_per_request else None


def serve_each(world: World, requests: Iterable[InferenceRequest]) -> None:
    """Answer every request before the next arrives."""
    for request in requests:
        world.arrive(request)
        world.finish_all()


def keep_waiting(world: World, requests: Iterable[InferenceRequest]) -> None:
    """One more arrives for each that is answered, so that as many wait as before."""
    for request in requests:
        world.arrive(request)
        world.finish_oldest()


def serve_in_batches(world: World, requests: Iterable[InferenceRequest]) -> None:
    """One run ends for every 32 that arrive: the next one takes them all."""
    for number, request in enumerate(requests, start=1):
        world.arrive(request)
        if number % 32 == 0:
            world.finish_oldest()


def with_waiting(waiting: int, **options: int) -> Callable[[], World]:
    """A world in which so many requests wait, beside those that run."""

    def build() -> World:
        world = World(**options)
        for request in world.requests(waiting + world.slots):
            world.arrive(request)
        return world

    return build


REFERENCE = "10 models, none waiting"
MANY = "1,000 models on 8 devices, 10,000 waiting"

CASES = (
    Case("1 model, none waiting", World, serve_each),
    Case(REFERENCE, lambda: World(models=10), serve_each),
    Case("10 models, with a workspace", lambda: World(models=10, workspace_bytes=1 << 20), serve_each),
    Case("10 models, 10,000 waiting", with_waiting(10_000, models=10), keep_waiting),
    Case("1,000 models, none waiting", lambda: World(models=1000), serve_each),
    Case("1,000 models on 8 devices, none waiting", lambda: World(models=1000, devices=8), serve_each),
    Case(MANY, with_waiting(10_000, models=1000, devices=8), keep_waiting),
    Case("1 model, in batches of 32", lambda: World(max_batch_size=32), serve_in_batches),
    Case("10 models, memory for 5", lambda: World(models=10, fitting=5), serve_each),
    Case("1,000 models on 8 devices, memory for 500", lambda: World(models=1000, devices=8, fitting=500), serve_each),
)


def measure(case: Case, count: int) -> Cost:
    """Serve so many requests in a fresh world."""
    world = case.build()
    requests = world.requests(count)
    evictions = world.evictions
    gc.collect()
    before_s = time.process_time()
    case.serve(world, requests)
    took_s = time.process_time() - before_s
    return Cost(took_s / count * 1e6, (world.evictions - evictions) / count)


def measure_all(cases: Iterable[Case], rounds: int, count: int) -> dict[str, Cost]:
    """The fastest round of every case."""
    found: dict[str, list[Cost]] = {}
    for _ in range(rounds):
        for case in cases:
            found.setdefault(case.name, []).append(measure(case, count))
    return {name: min(costs, key=lambda cost: cost.per_request_us) for name, costs in found.items()}


def report(costs: dict[str, Cost]) -> Table:
    table = Table(Column("case", no_wrap=True), "us", "ratio", "evictions", "us each", padding=0)
    for name, cost in costs.items():
        per_eviction = "" if cost.per_eviction_us is None else f"{cost.per_eviction_us:.1f}"
        evictions = f"{cost.evictions_per_request:.2f}" if cost.evictions_per_request else ""
        ratio = cost.per_request_us / costs[REFERENCE].per_request_us
        table.add_row(name, f"{cost.per_request_us:.1f}", f"{ratio:.2f}", evictions, per_eviction)
    return table


def as_json(costs: dict[str, Cost]) -> dict[str, dict[str, float | None]]:
    """For machines: what `report` shows."""
    reference_us = costs[REFERENCE].per_request_us
    return {
        name: {
            "per_request_us": cost.per_request_us,
            "ratio": cost.per_request_us / reference_us,
            "evictions_per_request": cost.evictions_per_request,
            "per_eviction_us": cost.per_eviction_us,
        }
        for name, cost in costs.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=20_000, help="of each case and round")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    options = parser.parse_args()
    costs = measure_all(CASES, options.rounds, options.requests)
    Console().print(report(costs))
    if options.json is not None:
        options.json.write_text(json.dumps(as_json(costs), indent=2) + "\n")


if __name__ == "__main__":
    main()
