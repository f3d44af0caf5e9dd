"""How much memory runs take at most. Only what runs alone in its process can be told."""

import sys
import threading
from collections.abc import Callable
from typing import TypeVar

from moorage.workers.child.heap import is_glibcs
from moorage.workers.child.meters import CudaMeter, Meter, Taken
from moorage.workers.child.resident import ResidentMeter

Result = TypeVar("Result")

# Runs of like size and shape: so many are measured in a row, and then ever fewer.
_FIRST_RUNS = 3
# Of runs of equal size, where all are to be measured: one in so many is not, for its time to be the usual one.
_UNMEASURED = 5


def peak_of(taken: Taken | None) -> tuple[int | None, int | None]:
    """As messages have it."""
    return (None, None) if taken is None else (taken.peak_bytes, taken.reserved_bytes)


def meter_of(device: str) -> Meter | None:
    """What measures a device's memory; None where nothing does."""
    if device != "cpu":
        return CudaMeter(device)
    if sys.platform != "linux" or not is_glibcs():
        return None
    try:
        return ResidentMeter()
    except (OSError, ValueError):  # some sandboxes have no such files, or not all of their lines
        return None


class Gauges:
    """One for a process. What does not run alone is not measured: it can't be told whose the memory is."""

    def __init__(self, meter: Meter | None) -> None:
        self.meter = meter
        self._lock = threading.Lock()
        self._under_way = 0
        self._begun = 0

    def beside(self, work: Callable[[], Result]) -> Result:
        """Do something that takes memory while runs may be measured. Raises what it raises."""
        self._enter()
        try:
            return work()
        finally:
            self._leave()

    def measured(self, work: Callable[[], Result], *, thorough: bool = False) -> tuple[Result, Taken | None]:
        """Do something, and what it took at most; None where it was not alone. Raises what it raises.

        thorough: as exactly as can be, whatever that costs.
        """
        begun = self._enter()
        try:
            if begun is None or self.meter is None:
                return work(), None
            try:
                self.meter.start(thorough=thorough)
                result = work()
                taken = self.meter.taken()
            finally:
                self.meter.stop()
            return result, taken if self._begun == begun else None
        finally:
            self._leave()

    def _enter(self) -> int | None:
        """Counts what begins; None where something else is under way."""
        with self._lock:
            self._under_way += 1
            self._begun += 1
            return self._begun if self._under_way == 1 else None

    def _leave(self) -> None:
        with self._lock:
            self._under_way -= 1


class LaneGauge:
    """Measures some of one model's runs, or steps.

    The first is left out, as what it makes for itself is still there for the next. thorough: all that the meter can
    tell is wanted, whatever it costs; only one run in some is left as it would be otherwise, for its time.
    """

    def __init__(self, gauges: Gauges, *, measures_all: bool) -> None:
        self._gauges = gauges
        self._is_cheap = gauges.meter is not None and gauges.meter.is_cheap
        self._thorough = measures_all and not self._is_cheap
        self._runs: dict[tuple[int, int], int] = {}

    def run(self, rows: int, input_bytes: int, work: Callable[[], Result]) -> tuple[Result, Taken | None]:
        """Do a run; what it took, where that was measured. Raises what the run raises."""
        is_first = not self._runs
        row_bytes = input_bytes // max(1, rows)
        size = (rows, row_bytes) if self._thorough else (rows.bit_length(), row_bytes.bit_length())
        count = self._runs[size] = self._runs.get(size, 0) + 1
        if is_first or not self._is_wanted(count):
            return self._gauges.beside(work), None
        return self._gauges.measured(work, thorough=self._thorough)

    def _is_wanted(self, count: int) -> bool:
        """Whether to measure the run that is the so-manieth of its size."""
        if self._thorough:
            return count % _UNMEASURED > 0
        return self._is_cheap or count <= _FIRST_RUNS or _is_power_of_four(count)


def _is_power_of_four(number: int) -> bool:
    return number.bit_count() == 1 and number.bit_length() % 2 == 1
