"""How fast a queue empties, so that who is refused learns when trying again makes sense."""

from collections import deque

# Departures that the rate is taken over.
DEPARTURES_KEPT = 32
# Told while nothing left the queue yet.
UNKNOWN_S = 1.0
_LEAST_S = 0.001
_MOST_S = 60.0


class Drain:
    """The latest departures of a queue since it last was empty."""

    __slots__ = ("_departures", "_rows")

    def __init__(self) -> None:
        self._departures: deque[tuple[float, int]] = deque(maxlen=DEPARTURES_KEPT)
        self._rows = 0

    def left(self, rows: int, now: float) -> None:
        """So many rows went into a run."""
        if len(self._departures) == DEPARTURES_KEPT:
            self._rows -= self._departures[0][1]
        self._departures.append((now, rows))
        self._rows += rows

    def emptied(self) -> None:
        """Nobody waits any more: how long the next one does has nothing to do with how long it takes to come."""
        self._departures.clear()
        self._rows = 0

    def rows_per_s(self, now: float) -> float | None:
        """Rows that left in every second since the first of these departures; None before the second."""
        if len(self._departures) < 2:
            return None
        since_s, first_rows = self._departures[0]
        return (self._rows - first_rows) / max(now - since_s, 1e-6)

    def wait_s(self, rows: float, now: float) -> float:
        """Seconds until so many rows have left, from a millisecond to a minute."""
        rate = self.rows_per_s(now)
        if rate is None:
            return UNKNOWN_S
        return min(_MOST_S, max(_LEAST_S, rows / max(rate, 1e-9)))
