"""What runs take of their device's memory beside the weights: what is declared, and what was measured."""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

from moorage.domain.model import MemoryPolicy, ProfiledRun
from moorage.domain.request import InferenceRequest

# What is leased beyond the most that was measured: the next run may take a little more.
MARGIN = 1.1
# How far a run that took less than others of its size brings the estimate down. One that took more counts at once.
_DECAY = 0.1
# Sizes of run that are told apart, of one shape; and shapes, of which each is twice the one before.
_MOST_SIZES = 32
_MOST_SHAPES = 64
_MOST_REMEMBERED = 4096


@dataclass(slots=True)
class Peak:
    """Runs of so many rows. size_bytes: the most that they are expected to take.

    measured_bytes: of the latest run. foreseen_bytes: what had been expected of it; None where nothing was known.
    runs: measured in this life of the server; 0 for what stands in a profile.
    """

    rows: int
    size_bytes: float
    measured_bytes: int = 0
    foreseen_bytes: float | None = None
    runs: int = 0

    def note(self, size_bytes: int, foreseen_bytes: float | None) -> None:
        self.runs += 1
        self.measured_bytes, self.foreseen_bytes = size_bytes, foreseen_bytes
        if size_bytes >= self.size_bytes:
            self.size_bytes = size_bytes
        else:
            self.size_bytes += _DECAY * (size_bytes - self.size_bytes)


class _Curve:
    """Bytes by rows, of runs of one shape: what was seen, and straight lines between."""

    __slots__ = ("_lines", "_rows", "peaks")

    def __init__(self) -> None:
        self.peaks: dict[int, Peak] = {}
        self._rows: list[int] = []
        self._lines: list[float] = []

    def profiled(self, rows: int, size_bytes: int) -> None:
        if len(self.peaks) < _MOST_SIZES or rows in self.peaks:
            self.peaks[rows] = Peak(rows, size_bytes, size_bytes)
            self._draw()

    def note(self, rows: int, size_bytes: int) -> None:
        foreseen_bytes = self.expected_bytes(rows) if self.peaks else None
        if foreseen_bytes and size_bytes > foreseen_bytes:
            # What was profiled elsewhere, and is too low here, is so for all sizes.
            for peak in self.peaks.values():
                if not peak.runs:
                    peak.size_bytes *= size_bytes / foreseen_bytes
        self._place(rows, size_bytes).note(size_bytes, foreseen_bytes)
        self._draw()

    def _place(self, rows: int, size_bytes: int) -> Peak:
        """The peak of this size; where there are too many already, that of the next larger, or the largest."""
        if rows not in self.peaks:
            if len(self.peaks) >= _MOST_SIZES:
                return self.peaks[self._rows[min(bisect_left(self._rows, rows), len(self._rows) - 1)]]
            self.peaks[rows] = Peak(rows, size_bytes)
        return self.peaks[rows]

    def _draw(self) -> None:
        """A larger run never takes less."""
        self._rows = sorted(self.peaks)
        self._lines = []
        most_bytes = 0.0
        for rows in self._rows:
            most_bytes = max(most_bytes, self.peaks[rows].size_bytes)
            self._lines.append(most_bytes)

    def expected_bytes(self, rows: int) -> float:
        """Of a run of so many rows. Below the smallest that was seen as much as that; beyond the largest as the last
        line goes on, and in proportion where there is no line."""
        seen, sizes = self._rows, self._lines
        above = bisect_left(seen, rows)
        if above == 0:
            return sizes[0]
        if above < len(seen):
            share = (rows - seen[above - 1]) / (seen[above] - seen[above - 1])
            return sizes[above - 1] + share * (sizes[above] - sizes[above - 1])
        if len(seen) == 1:
            return sizes[0] * rows / seen[0]
        slope = (sizes[-1] - sizes[-2]) / (seen[-1] - seen[-2])
        return sizes[-1] + slope * (rows - seen[-1])


class Workspaces:
    """Of one model on one kind of device: bytes by the rows of a run and its shape.

    Runs are of the same shape where the largest of their rows takes as many bytes of input, up to a factor of two. What
    is declared is leased at least; what was measured, and the margin, where it is more.

    most_bytes: what one run and the states of its first request could ever be given together; no more than that is
    leased for what was measured, since a model whose runs seemed to take more than there is has run all the same.
    """

    __slots__ = ("_curves", "_fixed_bytes", "_learned", "_per_row_bytes", "most_bytes")

    def __init__(self, declared: MemoryPolicy, profile: tuple[ProfiledRun, ...] = ()) -> None:
        """profile: of the kind of device that the model runs on."""
        self._fixed_bytes = declared.workspace_fixed_bytes
        self._per_row_bytes = declared.workspace_per_row_bytes
        self._curves: dict[int, _Curve] = {}
        self._learned: dict[tuple[int, int], float] = {}
        self.most_bytes = float("inf")
        for run in profile:
            self._curve(run.row_bytes).profiled(run.rows, run.peak_bytes)

    def _curve(self, row_bytes: int) -> _Curve:
        shape = row_bytes.bit_length()
        if shape not in self._curves and len(self._curves) >= _MOST_SHAPES:
            shape = min(self._curves, key=lambda known: abs(known - shape))
        return self._curves.setdefault(shape, _Curve())

    def note(self, rows: int, row_bytes: int, size_bytes: int) -> None:
        """Learn from a run of so many rows, at least one, the largest of which takes row_bytes of input."""
        self._curve(row_bytes).note(rows, size_bytes)
        self._learned.clear()

    @property
    def has_learned(self) -> bool:
        """Whether anything was measured, so that the shape of a run matters."""
        return bool(self._curves)

    def bytes_of(self, request: InferenceRequest) -> int:
        """What to lease for a run of this request alone."""
        return self.bytes_for(request.rows, request.row_bytes if self._curves else 0)

    def bytes_for(self, rows: int, row_bytes: int | None = None, beside_bytes: int = 0) -> int:
        """What to lease for a run.

        row_bytes: None where its shape is not known; then the largest counts. beside_bytes: of the first of its
        requests' states, which have to be there too.
        """
        declared_bytes = self._fixed_bytes + rows * self._per_row_bytes
        if not self._curves:
            return declared_bytes
        shape = max(self._curves) if row_bytes is None else row_bytes.bit_length()
        learned_bytes = self._learned.get((rows, shape))
        if learned_bytes is None:
            if len(self._learned) >= _MOST_REMEMBERED:
                self._learned.clear()
            learned_bytes = self._learned[rows, shape] = MARGIN * self._expected_bytes(rows, shape)
        return max(declared_bytes, int(min(learned_bytes, self.most_bytes - beside_bytes)))

    def expected_bytes(self, rows: int, row_bytes: int) -> float:
        """The most that a run is taken to need, by what was measured. Raises ValueError where nothing was."""
        if not self._curves:
            raise ValueError("nothing was measured of any run")
        return self._expected_bytes(rows, row_bytes.bit_length())

    def _expected_bytes(self, rows: int, shape: int) -> float:
        """Of a shape that was not seen: what the next larger takes. Beyond the largest, what that one takes, in
        proportion where nothing is declared: whoever declares something knows the largest."""
        upper = min((known for known in self._curves if known >= shape), default=None)
        # Larger rows never take less.
        seen_bytes = max(
            curve.expected_bytes(rows) for known, curve in self._curves.items() if upper is None or known <= upper
        )
        if upper is not None or self._fixed_bytes or self._per_row_bytes:
            return seen_bytes
        return seen_bytes * float(2 ** (shape - max(self._curves)))

    def peaks(self) -> Iterator[tuple[int, Peak]]:
        """What is known, from small to large: the most bytes that a row of that shape takes, and the peak."""
        for shape, curve in sorted(self._curves.items()):
            for rows in sorted(curve.peaks):
                yield 2**shape - 1, curve.peaks[rows]
