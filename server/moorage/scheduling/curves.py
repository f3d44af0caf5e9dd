"""Means of seconds by rows, and straight lines between them."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

# A size class forgets: the weight of its latest run, once it has seen as many as make that the plain mean.
_WEIGHT = 0.1
# One run that was held up says little about the next: it counts as at most so many times what was expected.
_MOST_TIMES = 3.0
_CLIPPED_FROM = 4
_KNOWN_FROM = 3
# A size that did not run while others ran so often may take something else by now: the next run of it counts as much as
# all before.
_STALE_AFTER = 64


@dataclass(slots=True)
class _Class:
    """Runs of like size: from a power of two to the next. Means of rows and of seconds.

    latest: the number of its latest run, of all sizes. errors: how many of them there are: of all runs but those of a
    profile, and the first where there was none. error: their mean, by what part runs differed from what was expected.
    """

    rows: float
    seconds: float
    runs: int = 1
    latest: int = 0
    profiled: bool = False
    errors: int = 0
    error: float = 0.0

    def note(self, rows: int, seconds: float, number: int) -> None:
        if number - self.latest > _STALE_AFTER:
            self.runs = 1
        self.latest = number
        if self.runs >= _CLIPPED_FROM:
            seconds = min(seconds, _MOST_TIMES * self.seconds)
        else:
            self.seconds = min(self.seconds, _MOST_TIMES * seconds)  # the one that was held up was among the first
        self.runs += 1
        weight = max(_WEIGHT, 1 / self.runs)
        self.rows += weight * (rows - self.rows)
        self.seconds += weight * (seconds - self.seconds)

    def note_error(self, seconds: float, expected_s: float) -> None:
        error = abs(seconds / expected_s - 1) if expected_s > 0 else 0.0
        self.errors += 1
        self.error += max(_WEIGHT, 1 / self.errors) * (error - self.error)


class SecondsByRows:
    """Robust means of what runs took, by size class, and straight lines between them."""

    __slots__ = ("_classes", "_noted", "_points")

    weight = _WEIGHT

    def __init__(self) -> None:
        self._classes: dict[int, _Class] = {}
        self._noted = 0
        self._points: list[tuple[float, float]] = []

    def note(self, rows: int, seconds: float) -> None:
        """Learn from a run of at least one row."""
        seen = self._classes.get(rows.bit_length())
        if seen is not None:
            seen.note_error(seconds, self.at(rows))
        self._add(rows, seconds)

    def profiled(self, rows: int, seconds: float) -> None:
        """Learn from a profile, which has nothing to be held against."""
        self._add(rows, seconds)
        self._classes[rows.bit_length()].profiled = True

    def _add(self, rows: int, seconds: float) -> None:
        size = rows.bit_length()
        self._noted += 1
        if size in self._classes:
            self._classes[size].note(rows, seconds, self._noted)
        else:
            self._classes[size] = _Class(rows, seconds, latest=self._noted)
        self._points = []

    @property
    def is_empty(self) -> bool:
        """Before the first run."""
        return not self._classes

    def expected_s(self, rows: int, like: "SecondsByRows | None" = None) -> float:
        """Of a run of so many rows. A larger run never takes less. Raises ValueError before the first run.

        like: of other runs; how they grow with their rows counts where all of these here were of one size.
        """
        points = self._drawn()
        if not points:
            raise ValueError("nothing is known of any run")
        if len(points) == 1 and like is not None:
            ((seen_rows, seconds),) = points
            like_s = like.at(seen_rows)
            if like_s > 0:
                return seconds * like.at(rows) / like_s
        return on_lines(points, rows)

    def at(self, rows: float) -> float:
        """As expected_s, of rows that are a mean."""
        return on_lines(self._drawn(), rows)

    def _drawn(self) -> Sequence[tuple[float, float]]:
        """Of each class, from small to large, the means of rows and of seconds; these never fall."""
        if not self._points:
            seen = [self._classes[size] for size in sorted(self._classes)]
            self._points = rising([(each.rows, each.seconds) for each in seen])
        return self._points

    def sizes(self) -> list[int]:
        """Of the runs of each class, the mean of their rows."""
        return [round(rows) for rows, _ in self._drawn()]

    def error(self, rows: int) -> float | None:
        """By what part runs of about this size differ from what was expected, on average; None before the second, or
        the first after a profile."""
        seen = self._classes.get(rows.bit_length())
        return seen.error if seen is not None and seen.errors else None

    def is_known(self, rows: int) -> bool:
        """Whether what runs of about this size take can be told from others of it: the first may have had to set
        things up, and counts for little only with two more."""
        seen = self._classes.get(rows.bit_length())
        return seen is not None and (seen.profiled or seen.runs >= _KNOWN_FROM)


def rising(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The same points of size and seconds, the seconds never falling."""
    seconds = accumulate((point[1] for point in points), max)
    return [(size, at_s) for (size, _), at_s in zip(points, seconds, strict=True)]


def on_lines(points: Sequence[tuple[float, float]], size: float) -> float:
    """Seconds at a size, on straight lines through points of size and seconds, of which there is one at least.

    Beyond them the last line goes on. Of one point alone, half of its seconds are taken to be the same for any size,
    and the other half to grow with it.
    """
    if len(points) == 1:
        ((seen, seconds),) = points
        return seconds * (0.5 + 0.5 * size / seen)
    upper = next((index for index, (seen, _) in enumerate(points) if seen >= size), len(points) - 1)
    (low, low_s), (high, high_s) = points[max(0, upper - 1)], points[max(1, upper)]
    return max(0.0, low_s + (high_s - low_s) * (size - low) / (high - low))
