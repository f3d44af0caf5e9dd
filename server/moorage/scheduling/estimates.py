"""What a run takes, learned from runs: seconds by its rows, and by the size of these where it varies."""

from collections import deque
from collections.abc import Iterable, Sequence

from moorage.domain.model import ProfiledRun
from moorage.scheduling.curves import SecondsByRows, on_lines, rising

# With the weight that a run has in a mean, older ones would count for a thirtieth.
_UNREAD = 32
# What runs take is taken to be known for so long after the latest, and for so many times what a run takes.
KNOWN_FOR_S = 1.0
KNOWN_FOR_RUNS = 2.0
_NEVER = float("-inf")


class RunSeconds:
    """Robust means of what runs took: of all, and, where the size of their rows is told, of each shape.

    Runs are of one shape where their rows have as many bytes of input, up to a factor of two.
    """

    __slots__ = ("_all", "_latest_s", "_mean_bytes", "_shapes", "_unread")

    def __init__(self, profile: Sequence[ProfiledRun] = (), *, rows_vary: bool = False) -> None:
        """profile: of the kind of device that the model runs on. rows_vary: the shapes in it are told apart."""
        self._all = SecondsByRows()
        self._shapes: dict[int, SecondsByRows] = {}
        # Of each shape that ran here: the mean of the bytes of a row, and when the latest run ended.
        self._mean_bytes: dict[int, float] = {}
        self._latest_s: dict[int, float] = {}
        # Many models are never asked: so a run is only written down, and of many only the latest count.
        self._unread: deque[tuple[int, float, int | None, float]] = deque(maxlen=_UNREAD)
        for run in profile:
            self._all.profiled(run.rows, run.seconds)
            if rows_vary:
                self._of_size(run.row_bytes).profiled(run.rows, run.seconds)

    def note(self, rows: int, seconds: float, row_bytes: int | None = None, ended_s: float = _NEVER) -> None:
        """Learn from a run of at least one row.

        row_bytes: of input, of one of its rows on average; None where rows are all of one size. ended_s: then, when.
        """
        self._unread.append((rows, seconds, row_bytes, ended_s))

    def _read(self) -> None:
        if self._unread:
            self._learn(self._unread)
            self._unread.clear()

    def _learn(self, runs: Iterable[tuple[int, float, int | None, float]]) -> None:
        for rows, seconds, row_bytes, ended_s in runs:
            self._all.note(rows, seconds)
            if row_bytes is None:
                continue
            self._of_size(row_bytes).note(rows, seconds)
            shape = row_bytes.bit_length()
            self._mean_bytes[shape] += self._all.weight * (row_bytes - self._mean_bytes[shape])
            self._latest_s[shape] = ended_s

    def _of_size(self, row_bytes: int) -> SecondsByRows:
        """What is known of rows of about so many bytes."""
        shape = row_bytes.bit_length()
        if shape not in self._shapes:
            self._shapes[shape], self._mean_bytes[shape], self._latest_s[shape] = SecondsByRows(), row_bytes, _NEVER
        return self._shapes[shape]

    @property
    def is_empty(self) -> bool:
        """Before the first run."""
        return self._all.is_empty and not self._unread

    def expected_s(self, rows: int, row_bytes: int | None = None) -> float:
        """Of a run of so many rows. A larger run never takes less. Raises ValueError before the first run.

        row_bytes: of one of its rows on average; None for runs of any shape. A shape that was not seen lies on lines
        between those that were.
        """
        self._read()
        if row_bytes is None or not self._shapes:
            return self._all.expected_s(rows)
        shape = row_bytes.bit_length()
        if shape in self._shapes:
            return self._of_shape(shape, rows)
        seen = [(2.0**known, self._of_shape(known, rows)) for known in sorted(self._shapes)]
        return on_lines(rising(seen), 2.0**shape)

    def _of_shape(self, shape: int, rows: int) -> float:
        """Where runs of one size alone were seen of it: as all runs grow with their rows."""
        return self._shapes[shape].expected_s(rows, like=self._all)

    def least_s(self, rows: int, row_bytes: int, now: float) -> float:
        """What a run takes at least, by what ran lately: less for rows that are smaller than the mean of their shape,
        and of a shape that did not run lately as much as one of smaller rows. 0.0 where there was none.

        What was learned of a shape long ago refuses nobody: else nothing might ever show that it is otherwise now.
        """
        self._read()
        own = row_bytes.bit_length()
        for shape in sorted(self._shapes, reverse=True):
            if shape <= own and self._is_known(shape, now):
                return self._of_shape(shape, rows) * min(1.0, row_bytes / max(1.0, self._mean_bytes[shape]))
        return 0.0

    def _is_known(self, shape: int, now: float) -> bool:
        return now - self._latest_s[shape] <= max(KNOWN_FOR_S, KNOWN_FOR_RUNS * self._of_shape(shape, 1))

    def most_s(self, rows: int) -> float:
        """What a run takes of the shape that takes longest. Raises ValueError before the first run."""
        return max([self.expected_s(rows), *(self._of_shape(shape, rows) for shape in self._shapes)])

    def sizes(self) -> list[tuple[int, int]]:
        """Of runs that were seen, the rows and the most bytes of a row of that shape; 0 where rows are of one size."""
        self._read()
        if not self._shapes:
            return [(rows, 0) for rows in self._all.sizes()]
        return [(rows, 2**shape - 1) for shape, seen in sorted(self._shapes.items()) for rows in seen.sizes()]

    def error(self, rows: int, row_bytes: int = 0) -> float | None:
        """By what part runs of about this size differ from what was expected, on average; None before the second, or
        the first after a profile."""
        seen = self._seen(row_bytes)
        return None if seen is None else seen.error(rows)

    def is_known(self, rows: int, row_bytes: int = 0) -> bool:
        """Whether what runs of about this size take was seen often enough to be told from that alone."""
        seen = self._seen(row_bytes)
        return seen is not None and seen.is_known(rows)

    def is_known_of_any(self, rows: int) -> bool:
        """Likewise, of runs of whatever shape."""
        self._read()
        return self._all.is_known(rows)

    def _seen(self, row_bytes: int) -> SecondsByRows | None:
        self._read()
        return self._shapes.get(row_bytes.bit_length()) if self._shapes else self._all
