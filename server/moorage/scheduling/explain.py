"""What would happen if a model were asked for n items now: found out without doing it."""

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """now: memory is free. evict, preempt: others would have to go first. wait: for work under way to end.

    refused: what is held there stays, so that it would be refused for now. never: it exceeds what the device could
    offer at its best.
    """

    NOW = "now"
    EVICT = "evict"
    PREEMPT = "preempt"
    WAIT = "wait"
    REFUSED = "refused"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds how many bytes of a device, for what ("context", "weights", "workspace", "state", "held").

    owner: a model, a worker or a hold, as the ledger names it. priority: of its model or hold; 0 for a worker.
    """

    owner: str
    kind: str
    size_bytes: int
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Explanation:
    """The answer, on the device where the model is or would go.

    needed_bytes: weights that are not there yet, and the workspace of that run. missing_bytes: of these, what can't
    be had now even by evicting and preempting. evict, preempt: in the order in which they would go.
    holders: everybody on the device, largest first. reason: one sentence for people.
    """

    verdict: Verdict
    device: str
    priority: int
    rows: int
    needed_bytes: int
    free_bytes: int
    missing_bytes: int
    evict: tuple[Holder, ...]
    preempt: tuple[Holder, ...]
    holders: tuple[Holder, ...]
    reason: str
