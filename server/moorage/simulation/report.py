"""What a simulation showed, in figures. The same scenario and seed give the same figures, digit by digit."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from moorage.simulation.caches import Returns, replay_all, replay_apart
from moorage.simulation.fleet import Fleet
from moorage.simulation.tally import Moved, Tally
from moorage.simulation.world import World

_DIGITS = 6


@dataclass(frozen=True, slots=True)
class PriorityFigures:
    """Requests of one priority that were answered, and how long after they came, in seconds."""

    priority: int
    answered: int
    in_time: int
    p50_s: float
    p99_s: float


@dataclass(frozen=True, slots=True)
class Transfers:
    """How often something moved, and how many bytes."""

    count: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class CacheFigures:
    """Bytes that come back in a plain cache fed with the same requests in the order of arrival; see `caches`."""

    lru_bytes: int
    lfu_bytes: int
    belady_bytes: int
    fewest_bytes: int


@dataclass(frozen=True, slots=True)
class PolicyFigures:
    """One policy's run.

    goodput_per_s: requests answered in time, per virtual second. failures: by error. returned: weights that came back,
    from the host or again from disk. preemptions: stepped requests that gave way. busy, memory_held: shares of what
    there is, averaged over devices and time. one_cache: of the capacity of all devices together, so it is the same for
    every policy where arrivals do not depend on answers. as_placed: a cache for each device, with the requests
    that the policy placed there; requests that never ran are left out.
    """

    policy: str
    seconds: float
    requests: int
    answered: int
    in_time: int
    goodput_per_s: float
    failures: dict[str, int]
    priorities: tuple[PriorityFigures, ...]
    runs: int
    rows_per_run: float
    loads: Transfers
    restores: Transfers
    evictions: Transfers
    returned: Transfers
    preemptions: int
    kills: int
    busy: float
    memory_held: float
    one_cache: CacheFigures
    as_placed: CacheFigures
    returned_to_lru: float | None
    returned_to_belady: float | None


@dataclass(frozen=True, slots=True)
class Report:
    """Several policies on one scenario."""

    scenario: str
    seed: int
    devices: int
    models: int
    weights_bytes: int
    policies: tuple[PolicyFigures, ...]

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2)


def figures_of(policy: str, world: World, fleet: Fleet) -> PolicyFigures:
    """The figures of a world that has come to its end."""
    tally, seconds = world.tally, world.now_s
    returned = _sum(tally.restores, tally.reloads)
    one_cache, as_placed = _caches(world, fleet)
    in_time = sum(tally.in_time.values())
    return PolicyFigures(
        policy=policy,
        seconds=_rounded(seconds),
        requests=len(tally.asked),
        answered=sum(tally.answered.values()),
        in_time=in_time,
        goodput_per_s=_ratio(in_time, seconds) or 0.0,
        failures=dict(sorted(tally.failures.items())),
        priorities=_by_priority(tally),
        runs=tally.runs,
        rows_per_run=_ratio(tally.run_rows, tally.runs) or 0.0,
        loads=_sum(tally.loads),
        restores=_sum(tally.restores),
        evictions=_sum(tally.offloads, tally.unloads),
        returned=returned,
        preemptions=tally.suspensions + tally.drops,
        kills=tally.kills,
        busy=_busy(world),
        memory_held=_memory_held(world),
        one_cache=one_cache,
        as_placed=as_placed,
        returned_to_lru=_ratio(returned.size_bytes, as_placed.lru_bytes),
        returned_to_belady=_ratio(returned.size_bytes, as_placed.belady_bytes),
    )


def _caches(world: World, fleet: Fleet) -> tuple[CacheFigures, CacheFigures]:
    sizes_bytes = fleet.weights_bytes
    capacities = [device.group.capacity_bytes - device.group.context_bytes for device in world.devices.values()]
    orders = {device.index: world.tally.placed_on(device.index) for device in world.devices.values()}
    together = replay_all(world.tally.asked, sizes_bytes, sum(capacities))
    return _cache_figures(together), _cache_figures(replay_apart(orders, sizes_bytes, capacities))


def _cache_figures(returns: Returns) -> CacheFigures:
    return CacheFigures(
        lru_bytes=returns.lru.size_bytes,
        lfu_bytes=returns.lfu.size_bytes,
        belady_bytes=returns.belady.size_bytes,
        fewest_bytes=returns.fewest_bytes,
    )


def _by_priority(tally: Tally) -> tuple[PriorityFigures, ...]:
    return tuple(
        PriorityFigures(
            priority=priority,
            answered=tally.answered[priority],
            in_time=tally.in_time[priority],
            p50_s=_percentile(latencies_s, 50),
            p99_s=_percentile(latencies_s, 99),
        )
        for priority, latencies_s in sorted(tally.latencies_s.items())
    )


def _percentile(values: Sequence[float], percent: int) -> float:
    """The nearest rank: a value that was really seen."""
    rank = -(-len(values) * percent // 100)
    return _rounded(sorted(values)[max(0, rank - 1)])


def _busy(world: World) -> float:
    slots = sum(device.group.run_slots for device in world.devices.values())
    return _ratio(sum(device.busy_s for device in world.devices.values()), slots * world.now_s) or 0.0


def _memory_held(world: World) -> float:
    held_bytes = sum(device.mean_held_bytes(world.now_s) for device in world.devices.values())
    return _ratio(held_bytes, sum(device.group.capacity_bytes for device in world.devices.values())) or 0.0


def _sum(*moves: Moved) -> Transfers:
    return Transfers(sum(moved.count for moved in moves), sum(moved.size_bytes for moved in moves))


def _ratio(part: float, whole: float) -> float | None:
    return _rounded(part / whole) if whole else None


def _rounded(value: float) -> float:
    return round(value, _DIGITS)
