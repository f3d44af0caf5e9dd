"""What is remembered of runs that found no memory: the same must not happen over and over, nor be assumed for ever."""

# So long the ceiling stays before it is raised for a try; twice as long each time that it turns out to be right.
FIRST_HOLD_S = 30.0
MOST_HOLD_S = 3600.0


class RowCeiling:
    """How many rows a run may have after one ran out of memory.

    Halved by every run that found no memory, doubled by time until nothing is left of it.
    """

    __slots__ = ("_hold_s", "_rows", "_until_s")

    def __init__(self) -> None:
        self._rows: int | None = None
        self._hold_s = FIRST_HOLD_S
        self._until_s = 0.0

    def ran_out(self, rows: int, now: float) -> None:
        """A run of so many rows found no memory. One row less than two is no matter of how many there are."""
        if rows < 2:
            return
        if self._rows is not None:
            self._hold_s = min(MOST_HOLD_S, 2.0 * self._hold_s)
        self._rows = min(rows // 2, self._rows or rows)
        self._until_s = now + self._hold_s

    def most_rows(self, most: int, now: float) -> int:
        """Of a run that may have at most so many otherwise."""
        if self._rows is None:
            return most
        if now >= self._until_s:
            self._rise(most, now)
        return most if self._rows is None else min(most, self._rows)

    def _rise(self, most: int, now: float) -> None:
        rows = 2 * (self._rows or 1)
        self._until_s = now + self._hold_s
        if rows < most:
            self._rows = rows
            return
        # What was learned is forgotten only once full runs have had the time to fail again.
        if self._rows is not None and self._rows >= most:
            self._rows, self._hold_s = None, FIRST_HOLD_S
        else:
            self._rows = most


class Spacing:
    """How often others make way: at once, and then ever more seldom for as long as it goes on."""

    __slots__ = ("_hold_s", "_until_s")

    def __init__(self) -> None:
        self._hold_s = 0.0
        self._until_s = float("-inf")

    def allows(self, now: float) -> bool:
        return now >= self._until_s

    def note(self, now: float) -> None:
        """They did."""
        went_on = now < self._until_s + self._hold_s
        self._hold_s = min(MOST_HOLD_S, 2.0 * self._hold_s) if went_on else FIRST_HOLD_S
        self._until_s = now + self._hold_s
