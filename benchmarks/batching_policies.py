"""When a run should begin, on virtual time: what pays, as the server does, beside fixed delays.

`python -m benchmarks.batching_policies` prints the tables of docs/batching.md. One model, whose run takes 6 ms and
0.8 ms a row; each trace is played once under every policy, and then with more instances. The figures are the same on
every machine.
"""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from moorage.domain.model import BatchingPolicy
from moorage.scheduling.policy import MOORAGE
from moorage.simulation.loading import parse_scenario
from moorage.simulation.simulate import simulate

MAX_BATCH_SIZE = 32
POLICIES = {"what pays": BatchingPolicy()} | {
    f"{delay_ms} ms": BatchingPolicy(delay_ms / 1000, MAX_BATCH_SIZE if delay_ms else 0) for delay_ms in (0, 2, 5, 10)
}
DEVICE = {"name": "cuda:0", "capacity": "40 GB", "host_to_device_per_s": "1000 GB", "disk_per_s": "1000 GB"}
MODEL = {
    "name": "mlp",
    "weights": "2 GB",
    "run_s": 0.006,
    "run_s_per_row": 0.0008,
    "max_batch_size": MAX_BATCH_SIZE,
    "max_queue_rows": 100_000,
}


# As many run slots as instances; a run takes as long beside others as alone.
INSTANCES = (1, 2, 4)


class Trace(NamedTuple):
    """arrivals: the keys of [[arrivals]], in which `level` is the number that varies."""

    name: str
    arrivals: dict[str, object]
    level: str
    levels: tuple[int, ...]
    deadline_s: float


TRACES = (
    Trace(
        "closed loops, think 0.5 to 3 ms; callers",
        {"pattern": "closed_loop", "think_s": [0.0005, 0.003]},
        "clients",
        (1, 2, 4, 8, 16, 32, 64),
        0.1,
    ),
    Trace(
        "Poisson; requests per second", {"pattern": "poisson"}, "rate_per_s", (20, 50, 100, 200, 400, 700, 900), 0.04
    ),
    Trace(
        "bursts of 0.2 s every second; requests per second in them",
        {"pattern": "bursts", "on_s": 0.2, "off_s": 0.8, "off_rate_per_s": 20},
        "on_rate_per_s",
        (100, 200, 400, 800, 1200),
        0.04,
    ),
)


def played(trace: Trace, level: int, policy: BatchingPolicy, instances: int = 1) -> str:
    """Requests answered within their deadline per second, and the latencies of all that were answered, in ms."""
    arrivals = {"models": ["mlp"], "deadline_s": trace.deadline_s, trace.level: level, **trace.arrivals}
    devices, models = [{**DEVICE, "run_slots": instances}], [{**MODEL, "instances": instances}]
    scenario = parse_scenario(
        {"seed": 1, "duration_s": 40, "devices": devices, "models": models, "arrivals": [arrivals]},
        "batching",
        Path(),
    )
    scenario = replace(scenario, models=tuple(replace(model, batching=policy) for model in scenario.models))
    figures = simulate(scenario, [MOORAGE]).policies[0]
    (latency,) = figures.priorities
    return f"{figures.goodput_per_s:.0f}, {latency.p50_s * 1e3:.1f} / {latency.p99_s * 1e3:.1f}"


def main() -> None:
    for trace in TRACES:
        table = Table(trace.name, *POLICIES, title="in time per second, p50 / p99 in ms")
        for level in trace.levels:
            table.add_row(str(level), *(played(trace, level, policy) for policy in POLICIES.values()))
        Console(width=140).print(table)
    for trace in TRACES[:2]:
        table = Table(trace.name, *map(str, INSTANCES), title="what pays, by instances")
        for level in trace.levels:
            table.add_row(str(level), *(played(trace, level, BatchingPolicy(), instances) for instances in INSTANCES))
        Console(width=140).print(table)


if __name__ == "__main__":
    main()
