"""What runs and steps of the networks take without any server: in this process, on the core that the server has.

Prints one JSON object: for each network the milliseconds of each stage, and of whole runs (median, 99 %).
"""

import json
import statistics
import time
from collections.abc import Callable
from typing import TypedDict

import torch

from benchmarks.disb_networks import NETWORKS, build, example

RUNS = 60
WARM_UP_RUNS = 5


class Timing(TypedDict):
    """Milliseconds. stages: medians of each."""

    stages: list[float]
    p50_ms: float
    p99_ms: float


def measure(network: str) -> Timing:
    """Run a network over and over, stage by stage."""
    stages, given = build(network), example(network)
    took: list[list[float]] = []
    for _ in range(WARM_UP_RUNS + RUNS):
        hidden, times_ms = given, []
        for stage in stages:
            hidden, took_ms = _timed(stage, hidden)
            times_ms.append(took_ms)
        took.append(times_ms)
    kept = took[WARM_UP_RUNS:]
    wholes = sorted(map(sum, kept))
    return Timing(
        stages=[statistics.median(column) for column in zip(*kept, strict=True)],
        p50_ms=statistics.median(wholes),
        p99_ms=wholes[int(0.99 * len(wholes))],
    )


def _timed(stage: Callable[[torch.Tensor], torch.Tensor], given: torch.Tensor) -> tuple[torch.Tensor, float]:
    began_s = time.perf_counter()
    found = stage(given)
    return found, (time.perf_counter() - began_s) * 1e3


def main() -> None:
    with torch.inference_mode():
        print(json.dumps({network: measure(network) for network in NETWORKS}))


if __name__ == "__main__":
    main()
