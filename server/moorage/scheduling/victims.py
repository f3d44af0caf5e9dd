"""Whom to put out when memory is short: as few and as cheap as will do, the lowest priority first."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby

from moorage.domain.model import ModelKey

# So many sets of victims are compared.
_TRIES = 8


class Way(StrEnum):
    """How a victim's memory comes free.

    evict: idle weights go to the host, or altogether. end: a dedicated model's process goes with its weights.
    wait: a step of lower priority ends anyway, and takes no new one. suspend: a stepped request's state goes to the
    host, or is given up and begun again. drain: a model that computes takes no new run and then goes. kill: the
    process of a dedicated model ends, whatever it computes.
    """

    EVICT = "evict"
    END = "end"
    WAIT = "wait"
    SUSPEND = "suspend"
    DRAIN = "drain"
    KILL = "kill"


_RUNNING = {Way.SUSPEND, Way.KILL}


@dataclass(frozen=True, slots=True)
class Victim:
    """Somebody who could make way.

    priority: of what would suffer, 1 the highest. worth: within a priority the least goes first.
    request_id: whose state, where it is one. after_others: it goes only when all that was chosen of its model before
    has gone.
    """

    way: Way
    key: ModelKey
    size_bytes: int
    priority: int
    worth: float
    request_id: int = 0
    after_others: bool = False


def choose(stages: Iterable[Sequence[Victim]], needed_bytes: int) -> list[Victim] | None:
    """Victims that free what is needed, in the order in which they should go; None if all of them are not enough.

    stages: from the mildest way to the harshest; a later one is touched only when those before don't suffice, and so
    is a higher priority. None of those chosen could be spared. Of running work the cheapest set goes; of idle weights
    those least worth keeping, in order: on traces of requests that restores fewer bytes than the set that is cheapest
    at the moment.
    """
    chosen: list[Victim] = []
    missing_bytes = needed_bytes
    for stage in stages:
        for victims in _by_priority(stage):
            freed_bytes = sum(victim.size_bytes for victim in victims)
            if freed_bytes < missing_bytes:
                chosen += victims
                missing_bytes -= freed_bytes
            elif missing_bytes > 0:
                return _cheapest(chosen, victims, missing_bytes)
        if missing_bytes <= 0:
            return chosen
    return None


def _by_priority(stage: Sequence[Victim]) -> Iterator[list[Victim]]:
    ordered = sorted((victim for victim in stage if victim.size_bytes > 0), key=order_of_leaving)
    return (list(victims) for _, victims in groupby(ordered, key=lambda victim: victim.priority))


def order_of_leaving(victim: Victim) -> tuple[int, float, ModelKey, int]:
    """For sorting: the lowest priority first, then those that are worth least."""
    return (-victim.priority, victim.worth, victim.key, -victim.request_id)


def _cheapest(before: list[Victim], victims: list[Victim], missing_bytes: int) -> list[Victim]:
    """Those before, and of these the cheapest that free what is missing, as far as a few tries show.

    Everybody who would complete the first in order makes one try; who does is then left out. That costs at most
    twice what the best choice would (Csirik, Frenk, Labbé and Zhang, Acta Cybernetica 1991, for minimum knapsack).
    """
    tries: list[list[Victim]] = []
    first: list[Victim] = []
    for victim in victims:
        if victim.size_bytes < missing_bytes:
            first.append(victim)
            missing_bytes -= victim.size_bytes
            continue
        tries.append(_without_needless([*before, *first, victim], victim.size_bytes - missing_bytes))
        if victim.way not in _RUNNING or len(tries) == _TRIES:
            break
    return min(tries, key=_cost)


def _cost(chosen: list[Victim]) -> float:
    return sum(victim.worth * victim.size_bytes for victim in chosen)


def _without_needless(chosen: list[Victim], spare_bytes: int) -> list[Victim]:
    """Spare whom the last ones made needless, the dearest first."""
    kept: list[Victim] = []
    must_go: set[ModelKey] = set()
    for victim in reversed(chosen):
        if victim.size_bytes <= spare_bytes and victim.key not in must_go:
            spare_bytes -= victim.size_bytes
            continue
        kept.append(victim)
        if victim.after_others:
            must_go.add(victim.key)
    kept.reverse()
    return kept
