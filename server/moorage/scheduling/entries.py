"""A request on its way through the core."""

from dataclasses import dataclass
from enum import StrEnum

from moorage.domain.request import InferenceRequest
from moorage.scheduling.budget import Lease


class Leaving(StrEnum):
    """Where a stepped request's state is on its way to: the host, or nowhere."""

    SUSPEND = "suspend"
    DROP = "drop"


@dataclass(slots=True, eq=False)
class Entry:
    """An accepted request on its way.

    priority: its own, or its model's. place: in the order of those who wait: that at which it came in and, from when
    it is taken out of its queue, the one that it had there.
    attempts: workers that died under it. cohort: of a failed run, those who are tried again together, and with nobody
    else, nor beside another run of their model; 0 for who may share a run with anybody.
    tried: devices on which it found no memory by itself. made_room: others made way for it once.
    preemptions: how often it gave way. steps: how many it has behind it. kept_bytes: of state after the last one.
    answers: how many of them answered something; sent: how many of these answers its caller has got, which may be more
    where it began again. paused: its caller does not take them, and it takes no step; paused_s: since when.
    gave_way: its state had to go once, for whatever reason.
    state, host: memory of its state, where it is stepped and has begun. leaving: the state is on its way out; told:
    its worker knows.
    """

    request: InferenceRequest
    priority: int = 3
    place: float = 0.0
    attempts: int = 0
    cohort: int = 0
    tried: tuple[str, ...] = ()
    made_room: bool = False
    preemptions: int = 0
    steps: int = 0
    kept_bytes: int = 0
    answers: int = 0
    sent: int = 0
    paused: bool = False
    paused_s: float = 0.0
    gave_way: bool = False
    state: Lease | None = None
    host: Lease | None = None
    leaving: Leaving | None = None
    told: bool = False

    def begin_again(self) -> None:
        """What was done of it is lost."""
        self.steps = self.answers = 0

    @property
    def stands_alone(self) -> bool:
        """Whether nothing else of its model may run beside it: it may be at fault, or find no memory just for that."""
        return bool(self.cohort or self.attempts)

    @property
    def has_begun(self) -> bool:
        """Whether it was in a run, or is a part of what was."""
        ran = self.attempts or self.steps or self.sent or self.gave_way
        return bool(ran or self.cohort or self.preemptions or self.tried or self.made_room)
