"""What somebody who waits needs of a device."""

from collections.abc import Hashable
from dataclasses import dataclass

from moorage.domain.model import ModelKey
from moorage.scheduling.semaphore import MemorySemaphore


@dataclass(frozen=True, slots=True)
class Claim:
    """What somebody needs to go on. waiter: as whom it stands in line.

    key: the model that is not to be put out for it, being its own.
    urgent: others took the memory away: whoever came in lately is not spared, nor is anybody's turn.
    """

    waiter: Hashable
    place: float
    priority: int
    needed_bytes: int
    share: MemorySemaphore | None = None
    key: ModelKey | None = None
    urgent: bool = False


def urgent_claim(device: str) -> Claim:
    """Of the device itself: it comes before everybody, and spares nobody."""
    return Claim(device, place=float("-inf"), priority=0, needed_bytes=0, urgent=True)
