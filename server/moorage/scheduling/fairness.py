"""Whose turn comes when several models of one priority want a device: each has its share of the device's seconds.

With weights w and W, its own and of all who want the device at that priority, and s runs at once, a model's share of
the time is s w / W: so a run of d seconds is what d W / (s w) seconds bring it, and its next is due so much after this
one was. Turns are taken in the order in which they are due. That is the virtual clock (Zhang, SIGCOMM 1990) on what
runs really took, so that nobody has to know beforehand. Its fault, that who used what nobody wanted is punished for it
later, is mended as in start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996): a run that began before it was due
counts from where it began, and nothing is saved up by a model that asked for nothing.
"""

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(slots=True)
class WaitingWeight:
    """The weights of all who wait for a device at one priority, as estimated; uses: for so many it is still good."""

    weight: float = 0.0
    uses: int = 0


class Returning(NamedTuple):
    """A model whose callers are expected back, at which priority, and until when."""

    priority: int
    until_s: float


def next_due_s(started_s: float, ended_s: float, due_s: float, since_s: float, times: float, most_s: float) -> float:
    """When a model's next turn is due after a run, where others wait for the device.

    started_s, ended_s: of the run. due_s: when it was due. since_s: since when the model wants the device without a
    break. times: W / (s w), as above. most_s: nobody is ahead or behind by more.
    """
    was_due_s = due_s if due_s > since_s else since_s
    if was_due_s > started_s:
        was_due_s = started_s
    elif was_due_s < started_s - most_s:
        was_due_s = started_s - most_s
    next_s = was_due_s + (ended_s - started_s) * (times if times > 1.0 else 1.0)
    return next_s if next_s < ended_s + most_s else ended_s + most_s


def next_due_beside_s(started_s: float, ended_s: float, was_due_s: float, times: float, most_s: float) -> float:
    """When the next turn is due of a model that may have several runs at once: each is charged, one after the other,
    though they took the same time. times: at least 1 / n with n of them."""
    next_s = max(was_due_s, started_s - most_s) + (ended_s - started_s) * times
    return min(next_s, ended_s + most_s)
