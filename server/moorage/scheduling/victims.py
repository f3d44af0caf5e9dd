"""Whom to put out when memory is short: as few and as cheap as will do, the lowest priority first."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from moorage.domain.model import ModelKey


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

    stages: from the mildest way to the harshest; a later one is touched only when those before don't suffice. None
    of those chosen could be spared.
    """
    chosen: list[Victim] = []
    missing_bytes = needed_bytes
    for stage in stages:
        for victim in sorted(stage, key=_order):
            if missing_bytes <= 0:
                break
            if victim.size_bytes > 0:
                chosen.append(victim)
                missing_bytes -= victim.size_bytes
        if missing_bytes <= 0:
            return _without_needless(chosen, -missing_bytes)
    return None


def _order(victim: Victim) -> tuple[int, float, ModelKey, int]:
    return (-victim.priority, victim.worth, victim.key, -victim.request_id)


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
