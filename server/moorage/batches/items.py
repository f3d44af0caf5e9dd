"""Items, what has become of them, and of how many."""

import enum
from dataclasses import dataclass
from typing import NamedTuple


class Item(NamedTuple):
    """position: its number in the batch, from 0. payload: a serialized request, opaque to this room."""

    position: int
    item_id: str
    payload: bytes


class Submitted(NamedTuple):
    """An item that has just come. An empty item_id stands for its position."""

    item_id: str
    payload: bytes


class Outcome(NamedTuple):
    """What has become of an item, for good. content: a serialized result, or where `failed` a serialized status.

    sequence: of all outcomes of the batch, from 1, in the order in which they are told.
    """

    position: int
    item_id: str
    failed: bool
    content: bytes
    sequence: int = 0


class Added(NamedTuple):
    """How many of the items that came are new, and how many were there already."""

    new: int
    duplicates: int


class BatchState(enum.Enum):
    RUNNING = "running"
    DONE = "done"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


class ItemState(enum.Enum):
    """What an item without an outcome does, where that is worth telling."""

    RUNNING = "running"
    PREEMPTED = "preempted"
    RETRYING = "retrying"


@dataclass(slots=True)
class Counts:
    """Items by what has become of them. The rest of those received is under way, or still waits.

    cancelled: without an outcome for good, as the batch ended first.
    """

    received: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0

    @property
    def finished(self) -> int:
        """Those that have an outcome."""
        return self.succeeded + self.failed

    @property
    def open(self) -> int:
        """Those that will have one."""
        return self.received - self.finished - self.cancelled


@dataclass(frozen=True, slots=True)
class UnderWay:
    """Of the open items: those the engine has, of these those that gave way to others, and those that wait to be tried
    again."""

    running: int = 0
    preempted: int = 0
    retrying: int = 0
