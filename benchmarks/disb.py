"""Real-time work beside best-effort work on one device: the five workloads of DISB, over gRPC on a real server.

A: one periodic real-time task beside one closed loop of best effort. B: both closed loops. C: one periodic task beside
five closed loops of different models. D: five periodic tasks beside five closed loops. E: as D, at random (Poisson).
The networks are those of `disb_networks`; the server has one run slot, one core, and the callers the other core.
Settings are taken in turn, round after round: `solo` (the real-time tasks alone), `off` (no request names a priority)
and `on` (real time asks for 1, best effort for 5). The aim for `on`: a real-time p99 of at most 1.3 times solo and one
step of best effort, and at least 0.95 of the requests that are answered with priorities off.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from benchmarks.disb_load import Counted
from benchmarks.disb_report import Figures, Sample, as_json, figures, main_table, one_step_ms, sample, solo_table
from benchmarks.disb_server import SERVER_CORE, DisbServer, run_json
from benchmarks.disb_steps import Timing
from benchmarks.disb_workloads import NETWORKS, WORKLOADS, Setting, Workload, alone, workloads

SOLO_SECONDS = 3.0

Rounds = dict[str, list[Mapping[Setting, Sample]]]


@dataclass(frozen=True, slots=True)
class Alone:
    """Each network by itself: computing without a server, served in a closed loop, and the rate of that."""

    timings: Mapping[str, Timing]
    served: Mapping[str, Counted]
    rates_per_s: Mapping[str, float]


def measure_alone(server: DisbServer) -> Alone:
    """The server idles while the networks are timed on its core."""
    served = {network: server.load(alone(network, SOLO_SECONDS)) for network in NETWORKS}
    timings: dict[str, Timing] = run_json("benchmarks.disb_steps", core=SERVER_CORE)
    rates_per_s = {network: len(counted["latencies_ms"][0]) / SOLO_SECONDS for network, counted in served.items()}
    return Alone(timings, served, rates_per_s)


def measure_round(
    server: DisbServer, workload: Workload, known: Alone, seconds: float, number: int
) -> Mapping[Setting, Sample]:
    """All settings of a workload, one after the other, each round beginning with another one."""
    order = list(Setting)
    order = order[number % 3 :] + order[: number % 3]
    found = {}
    for setting in order:
        counted = server.load(workload.plan(setting, known.rates_per_s, seconds, seed=number))
        found[setting] = sample(workload, counted, seconds, known.timings)
    return found


def measure(chosen: Sequence[Workload], rounds: int, seconds: float) -> tuple[Alone, Rounds]:
    samples: Rounds = {workload.name: [] for workload in chosen}
    with DisbServer() as server:
        known = measure_alone(server)
        for number in range(rounds):
            for workload in chosen:
                samples[workload.name].append(measure_round(server, workload, known, seconds, number))
    return known, samples


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=6.0, help="of each workload, setting and round")
    parser.add_argument("--only", default=",".join(WORKLOADS), metavar="A,C", help="workloads")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    options = parser.parse_args()
    names = options.only.split(",")
    if not set(names) <= set(WORKLOADS):
        parser.error(f"--only: expected some of {','.join(WORKLOADS)}, got {options.only!r}")
    known, samples = measure(workloads(names), options.rounds, options.seconds)
    step_ms = one_step_ms(known.timings)
    found: dict[str, Figures] = {name: figures(rounds, step_ms) for name, rounds in samples.items()}
    console = Console()
    console.print(solo_table(known.timings, known.served))
    console.print(main_table(found))
    console.print(f"One step, the longest run or stage of a best-effort model: {step_ms:.1f} ms")
    if options.json is not None:
        content = as_json(found, samples, known.timings, known.rates_per_s)
        options.json.write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    main()
