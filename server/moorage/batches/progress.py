"""How fast a batch goes, and how long it will take."""

_WINDOW_S = 10.0
_MARKS = 21


class Pace:
    """Outcomes per second over the last ten seconds."""

    def __init__(self) -> None:
        self._marks: list[tuple[float, int]] = []

    def mark(self, now: float, finished: int) -> None:
        """So many outcomes are there by now. To be called about twice a second; now: monotonic seconds."""
        self._marks.append((now, finished))
        while len(self._marks) > 1 and (now - self._marks[1][0] >= _WINDOW_S or len(self._marks) > _MARKS):
            del self._marks[0]

    @property
    def per_second(self) -> float:
        """0 before two marks."""
        if len(self._marks) < 2:
            return 0.0
        (began_s, before), (ended_s, after) = self._marks[0], self._marks[-1]
        return (after - before) / (ended_s - began_s) if ended_s > began_s else 0.0

    def remaining_s(self, open_items: int) -> float:
        """Seconds until so many more have an outcome, at this pace; 0 where that can't be said."""
        return open_items / self.per_second if self.per_second > 0 else 0.0
