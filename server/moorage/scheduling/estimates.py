"""What a run takes, learned from runs: seconds by its rows."""

from collections import deque
from dataclasses import dataclass

# A size class forgets: the weight of its latest run, once it has seen as many as make that the plain mean.
_WEIGHT = 0.1
# One run that was held up says little about the next: it counts as at most so many times what was expected.
_MOST_TIMES = 3.0
_CLIPPED_FROM = 4
# With the weight above, older ones would count for a thirtieth.
_UNREAD = 32


@dataclass(slots=True)
class _Class:
    """Runs of like size: from a power of two to the next. Means of rows and of seconds.

    error: the mean of by what part they differed from the mean before them.
    """

    rows: float
    seconds: float
    runs: int = 1
    error: float | None = None

    def note(self, rows: int, seconds: float) -> None:
        if self.runs >= _CLIPPED_FROM:
            seconds = min(seconds, _MOST_TIMES * self.seconds)
        self.runs += 1
        weight = max(_WEIGHT, 1 / self.runs)
        error = abs(seconds / self.seconds - 1) if self.seconds > 0 else 0.0
        self.error = error if self.error is None else self.error + weight * (error - self.error)
        self.rows += weight * (rows - self.rows)
        self.seconds += weight * (seconds - self.seconds)


class RunSeconds:
    """Robust means of what runs took, by size class, and straight lines between them."""

    __slots__ = ("_classes", "_points", "_unread")

    def __init__(self) -> None:
        self._classes: dict[int, _Class] = {}
        self._points: list[tuple[float, float]] = []
        # Many models are never asked: so a run is only written down, and of many only the latest count.
        self._unread: deque[tuple[int, float]] = deque(maxlen=_UNREAD)

    def note(self, rows: int, seconds: float) -> None:
        """Learn from a run of at least one row."""
        self._unread.append((rows, seconds))

    def _read(self) -> None:
        for rows, seconds in self._unread:
            size = rows.bit_length()
            if size in self._classes:
                self._classes[size].note(rows, seconds)
            else:
                self._classes[size] = _Class(rows, seconds)
        self._unread.clear()
        self._points = self._lines()

    @property
    def is_empty(self) -> bool:
        """Before the first run."""
        return not self._classes and not self._unread

    def expected_s(self, rows: int) -> float:
        """Of a run of so many rows. A larger run never takes less. Raises ValueError before the first run.

        Beyond the sizes that were seen the last line goes on. Where all runs were alike, half of what they took is
        taken to be the same for any size, and the other half to grow with the rows.
        """
        if self._unread:
            self._read()
        points = self._points
        if not points:
            raise ValueError("nothing is known of any run")
        if len(points) == 1:
            ((seen_rows, seconds),) = points
            return seconds * (0.5 + 0.5 * rows / seen_rows)
        upper = next((index for index, (seen_rows, _) in enumerate(points) if seen_rows >= rows), len(points) - 1)
        (low_rows, low_s), (high_rows, high_s) = points[max(0, upper - 1)], points[max(1, upper)]
        return max(0.0, low_s + (high_s - low_s) * (rows - low_rows) / (high_rows - low_rows))

    def sizes(self) -> list[int]:
        """Of the runs of each class, the mean of their rows."""
        self._read()
        return [round(seen.rows) for _, seen in sorted(self._classes.items())]

    def error(self, rows: int) -> float | None:
        """By what part runs of about this size differ from what was expected, on average; None before the second."""
        self._read()
        seen = self._classes.get(rows.bit_length())
        return None if seen is None else seen.error

    def _lines(self) -> list[tuple[float, float]]:
        """Rows and seconds of every class, the seconds never falling."""
        points: list[tuple[float, float]] = []
        for size in sorted(self._classes):
            seen = self._classes[size]
            points.append((seen.rows, max(seen.seconds, points[-1][1] if points else 0.0)))
        return points
