"""From what was counted to what is said: one set of figures for each workload, medians over the rounds."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from rich.table import Table

from benchmarks.disb_load import Counted
from benchmarks.disb_steps import Timing
from benchmarks.disb_workloads import STEPPED, Setting, Workload

MOST_OF_SOLO, LEAST_KEPT = 1.3, 0.95


@dataclass(frozen=True, slots=True)
class Sample:
    """One setting of one round. Latencies are of all real-time tasks together, in ms.

    waited_ms: for the run slot, on average of the real-time tasks.
    work: what was answered, each request counted with the time that it computes alone, over the time measured.
    """

    p50_ms: float
    p99_ms: float
    waited_ms: float
    real_time: int
    best_effort: int
    work: float

    @property
    def total(self) -> int:
        return self.real_time + self.best_effort


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one workload. Latencies in ms: alone, with priorities off and on; the ratio is that of the p99 on to solo.

    off_waited_ms, on_waited_ms: for the run slot, of a real-time request, on average.
    samples: real-time requests behind a p99. best_effort_kept, total_kept, work_kept: with priorities on, of what it is
    with them off. most_ms: the aim for the p99.
    """

    samples: int
    solo_p50_ms: float
    solo_p99_ms: float
    off_p99_ms: float
    on_p50_ms: float
    on_p99_ms: float
    off_waited_ms: float
    on_waited_ms: float
    ratio: float
    most_ms: float
    best_effort_kept: float
    total_kept: float
    work_kept: float

    @property
    def met(self) -> bool:
        return self.on_p99_ms <= self.most_ms and self.total_kept >= LEAST_KEPT


def percentile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def sample(workload: Workload, counted: Counted, seconds: float, timings: Mapping[str, Timing]) -> Sample:
    """Raises ValueError where no real-time request was answered in the time measured."""
    latencies_ms = counted["latencies_ms"]
    networks = workload.real_time + workload.best_effort
    urgent = len(workload.real_time)
    ordered = sorted(latency_ms for task in latencies_ms[:urgent] for latency_ms in task)
    if not ordered:
        raise ValueError(f"workload {workload.name}: no real-time request in {seconds:g} s; ask for more seconds")
    work_ms = sum(len(task) * timings[name]["p50_ms"] for task, name in zip(latencies_ms, networks, strict=False))
    return Sample(
        p50_ms=percentile(ordered, 0.50),
        p99_ms=percentile(ordered, 0.99),
        waited_ms=statistics.mean(spent["waited_ms"] for spent in counted["spent"][:urgent]),
        real_time=len(ordered),
        best_effort=sum(map(len, latencies_ms[urgent:])),
        work=work_ms / (seconds * 1e3),
    )


def figures(rounds: Sequence[Mapping[Setting, Sample]], one_step_ms: float) -> Figures:
    """Ratios are taken within each round, whose settings ran right after one another."""
    solo, off, on = ([samples[setting] for samples in rounds] for setting in Setting)
    pairs = list(zip(off, on, strict=True))
    solo_p99_ms = statistics.median(one.p99_ms for one in solo)
    return Figures(
        samples=min(one.real_time for one in on),
        solo_p50_ms=statistics.median(one.p50_ms for one in solo),
        solo_p99_ms=solo_p99_ms,
        off_p99_ms=statistics.median(one.p99_ms for one in off),
        on_p50_ms=statistics.median(one.p50_ms for one in on),
        on_p99_ms=statistics.median(one.p99_ms for one in on),
        off_waited_ms=statistics.median(one.waited_ms for one in off),
        on_waited_ms=statistics.median(one.waited_ms for one in on),
        ratio=statistics.median(with_it.p99_ms / by_itself.p99_ms for by_itself, with_it in zip(solo, on, strict=True)),
        most_ms=MOST_OF_SOLO * solo_p99_ms + one_step_ms,
        best_effort_kept=statistics.median(after.best_effort / max(1, before.best_effort) for before, after in pairs),
        total_kept=statistics.median(after.total / max(1, before.total) for before, after in pairs),
        work_kept=statistics.median(after.work / before.work for before, after in pairs),
    )


def one_step_ms(timings: Mapping[str, Timing]) -> float:
    """The longest that a best-effort model can't be interrupted for: a stage of a stepped one, a run of another."""
    return max(max(timing["stages"]) if network in STEPPED else timing["p50_ms"] for network, timing in timings.items())


def main_table(found: Mapping[str, Figures]) -> Table:
    """wait: mean, for the run slot. kept: with priorities on, of what there is with them off."""
    columns = (
        "",
        "solo p50",
        "p99",
        "off wait",
        "p99",
        "on wait",
        "p50",
        "p99",
        "ratio",
        "aim",
        "kept: be",
        "all",
        "work",
    )
    table = Table(*columns, "met", title="DISB: real-time latency in ms, and throughput kept", padding=0)
    for name, row in found.items():
        without_ms = (row.solo_p50_ms, row.solo_p99_ms, row.off_waited_ms, row.off_p99_ms)
        with_ms = (row.on_waited_ms, row.on_p50_ms, row.on_p99_ms)
        table.add_row(
            name,
            *(f"{latency_ms:.1f}" for latency_ms in without_ms + with_ms),
            f"{row.ratio:.2f}",
            f"{row.most_ms:.1f}",
            *(f"{share:.2f}" for share in (row.best_effort_kept, row.total_kept, row.work_kept)),
            "yes" if row.met else "no",
        )
    return table


def solo_table(timings: Mapping[str, Timing], served: Mapping[str, Counted]) -> Table:
    """Each network in a closed loop alone. protocol: a latency's mean, less what the worker computed."""
    columns = ("network", "longest stage", "run p50", "run p99", "served p50", "served p99", "protocol", "of p99")
    table = Table(*columns, title="One network alone, ms", padding=0)
    for network, timing in timings.items():
        latencies_ms = sorted(served[network]["latencies_ms"][0])
        p50_ms, p99_ms = percentile(latencies_ms, 0.50), percentile(latencies_ms, 0.99)
        protocol_ms = statistics.mean(latencies_ms) - served[network]["spent"][0]["computed_ms"]
        cells = (max(timing["stages"]), timing["p50_ms"], timing["p99_ms"], p50_ms, p99_ms, protocol_ms)
        table.add_row(network, *(f"{cell:.2f}" for cell in cells), f"{protocol_ms / p99_ms:.0%}")
    return table


def as_json(
    found: Mapping[str, Figures],
    samples: Mapping[str, Sequence[Mapping[Setting, Sample]]],
    timings: Mapping[str, Timing],
    rates_per_s: Mapping[str, float],
) -> dict[str, object]:
    """For machines: the figures, what they were made of, and what was measured of each network."""
    rounds = {
        name: [{setting.value: asdict(one) for setting, one in each.items()} for each in every]
        for name, every in samples.items()
    }
    return {
        "workloads": {name: {**asdict(row), "met": row.met} for name, row in found.items()},
        "one_step_ms": one_step_ms(timings),
        "networks": {name: {**timing, "solo_per_s": rates_per_s[name]} for name, timing in timings.items()},
        "rounds": rounds,
    }
