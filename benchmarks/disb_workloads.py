"""The five workloads of DISB, and the settings that each is run in.

DISB is the benchmark of REEF (Han et al., OSDI 2022): real-time tasks beside best-effort tasks on one device.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from benchmarks.disb_load import Arrivals, Plan, Task

REAL_TIME_PRIORITY, BEST_EFFORT_PRIORITY = 1, 5
NETWORKS = ("residual", "plain", "dense", "inception", "attention")
STEPPED = frozenset({"residual", "plain", "attention"})  # as best effort: the heavier ones
URGENT, HEAVY = "residual", "plain"


class Setting(StrEnum):
    """solo: the real-time tasks alone. off: all of them, and no request names a priority. on: all of them do."""

    SOLO = "solo"
    OFF = "off"
    ON = "on"


@dataclass(frozen=True, slots=True)
class Workload:
    """real_time: networks. share: of a task's rate in a closed loop alone; not for closed ones. best_effort: closed."""

    name: str
    real_time: tuple[str, ...]
    best_effort: tuple[str, ...]
    arrivals: Arrivals
    share: float = 0.0

    def plan(self, setting: Setting, rates_per_s: Mapping[str, float], seconds: float, seed: int) -> Plan:
        """The real-time tasks come first, in their order, and come at the same moments in all settings."""
        on = setting is Setting.ON
        tasks = [
            Task(
                model=network,
                priority=REAL_TIME_PRIORITY if on else 0,
                arrivals=self.arrivals,
                per_s=self.share * rates_per_s[network],
            )
            for network in self.real_time
        ]
        if setting is not Setting.SOLO:
            tasks += [_best_effort(network, BEST_EFFORT_PRIORITY if on else 0) for network in self.best_effort]
        return Plan(tasks=tasks, seconds=seconds, seed=seed)


def _best_effort(network: str, priority: int) -> Task:
    return Task(model=f"{network}_background", priority=priority, arrivals="closed", per_s=0.0)


def alone(network: str, seconds: float) -> Plan:
    """One network in a closed loop, for its rate."""
    return Plan(tasks=[Task(model=network, priority=0, arrivals="closed", per_s=0.0)], seconds=seconds, seed=0)


def workloads(names: Sequence[str]) -> list[Workload]:
    """Those of these names. Raises KeyError."""
    return [WORKLOADS[name] for name in names]


WORKLOADS: Mapping[str, Workload] = {
    workload.name: workload
    for workload in (
        Workload("A", (URGENT,), (HEAVY,), "periodic", 0.30),
        Workload("B", (URGENT,), (HEAVY,), "closed"),
        Workload("C", (URGENT,), NETWORKS, "periodic", 0.30),
        Workload("D", NETWORKS, NETWORKS, "periodic", 0.06),
        Workload("E", NETWORKS, NETWORKS, "poisson", 0.06),
    )
}
