"""Who goes first and who goes out: the policy of the server, and simpler ones to compare it with."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple


class Waiting(NamedTuple):
    """What an order may look at.

    arrived_s: of the request. served_s: when its model last had a turn; minus infinity if never.
    """

    arrived_s: float
    priority: int
    served_s: float


@dataclass(frozen=True, slots=True)
class Resident:
    """What a choice of victims may look at.

    size_bytes: what its going would free. restore_s: what bringing it back would take.
    uses_per_s: as expected now. came_s, used_s: since when it is in memory, and when it was last asked for.
    """

    size_bytes: int
    restore_s: float
    uses_per_s: float
    came_s: float
    used_s: float


@dataclass(frozen=True, slots=True)
class Policy:
    """place: the lower goes first, given the seconds that one level of priority is worth (ageing).

    worth: the least goes out first. by_priority: priorities count, in the order and for victims, and a
    model's earliest deadline goes first; preempts: running
    steps give way.
    """

    name: str
    place: Callable[[Waiting, float], float]
    worth: Callable[[Resident], float]
    by_priority: bool = True
    preempts: bool = True


def aged_place(waiting: Waiting, ageing_s: float) -> float:
    """Strict by priority among those who came within `ageing_s`; who waits longer rises a level each time.

    As arrival and level both count in seconds, a request's place never changes while it waits.
    """
    return waiting.arrived_s + waiting.priority * ageing_s


def expected_restoring(resident: Resident) -> float:
    """Seconds of restoring to be expected per second, for every byte that its going would free."""
    return resident.restore_s * resident.uses_per_s / max(1, resident.size_bytes)


MOORAGE = Policy("moorage", aged_place, expected_restoring)
FIFO = Policy(
    "fifo", lambda waiting, _: waiting.arrived_s, lambda resident: resident.came_s, by_priority=False, preempts=False
)
LRU = Policy(
    "lru", lambda waiting, _: waiting.arrived_s, lambda resident: resident.used_s, by_priority=False, preempts=False
)
ROUND_ROBIN = Policy(
    "round_robin",
    lambda waiting, _: waiting.served_s,
    lambda resident: resident.used_s,
    by_priority=False,
    preempts=False,
)

POLICIES: Mapping[str, Policy] = {policy.name: policy for policy in (MOORAGE, FIFO, LRU, ROUND_ROBIN)}


def policy_named(name: str) -> Policy:
    """Raises ValueError, naming those that there are."""
    if name not in POLICIES:
        raise ValueError(f"policy: expected one of {', '.join(POLICIES)}, got {name!r}")
    return POLICIES[name]
