"""How fast a queue empties, or all of them together, so that who is refused learns when trying again makes sense."""

# The rate is taken over the latest departures: at least so many, and at most twice as many.
DEPARTURES = 32
# Told while nothing is known.
UNKNOWN_S = 1.0
_LEAST_S = 0.001
_MOST_S = 60.0


class Drain:
    """Rows that left a queue since it last was empty, in two spans of time. is_known: there are any."""

    __slots__ = ("_before_rows", "_before_s", "_departures", "_rows", "_since_s", "is_known")

    def __init__(self) -> None:
        self.emptied()

    def emptied(self) -> None:
        """Nobody waits any more: how long the next one does has nothing to do with how long it takes to come."""
        self._before_s = self._since_s = 0.0
        self._before_rows = self._rows = self._departures = 0
        self.is_known = False

    def left(self, rows: int, now: float) -> None:
        """So many rows went into a run."""
        if not self.is_known:
            # From here on: what went before this one is not known.
            self._before_s = self._since_s = now
            self.is_known = True
            return
        self._rows += rows
        self._departures += 1
        if self._departures == DEPARTURES:
            self._before_s, self._before_rows = self._since_s, self._rows
            self._since_s, self._rows, self._departures = now, 0, 0

    def rows_per_s(self, now: float) -> float | None:
        """Rows that left in every second of these spans; None before the second departure."""
        rows = self._before_rows + self._rows
        return rows / max(now - self._before_s, 1e-6) if rows else None

    def wait_s(self, rows: float, now: float) -> float:
        """Seconds until so many rows have left, from a millisecond to a minute."""
        rate = self.rows_per_s(now)
        if rate is None:
            return UNKNOWN_S
        return min(_MOST_S, max(_LEAST_S, rows / rate))
