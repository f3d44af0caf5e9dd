"""How much memory runs take at most. Only what runs alone in its process can be told."""

import ctypes
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from moorage.workers.runtimes import peak_since, start_peak

Result = TypeVar("Result")

# Runs of like size and shape: so many are measured in a row, and then ever fewer.
_FIRST_RUNS = 3
_STATUS = "/proc/self/status"
# What a process takes meanwhile that is not the run's: of the interpreter, and whole pages. A device that is full of
# weights must not seem to have no room for a run that takes nothing.
_OWN_BYTES = 96 * 1024
_KIB = 1024


@dataclass(frozen=True, slots=True)
class Taken:
    """What a run took at most. reserved_bytes: what an allocator took of the device for it; None without one."""

    peak_bytes: int
    reserved_bytes: int | None = None


def peak_of(taken: Taken | None) -> tuple[int | None, int | None]:
    """As messages have it."""
    return (None, None) if taken is None else (taken.peak_bytes, taken.reserved_bytes)


class Meter(Protocol):
    """Measures the most that this process takes between two calls.

    is_cheap: whether every run can be measured.
    """

    is_cheap: bool

    def start(self) -> None: ...

    def taken(self) -> Taken | None:
        """Since start, beyond what was taken then. None where that can't be told after all."""
        ...


class CudaMeter:
    """Of a CUDA device, by torch's allocator."""

    is_cheap = True

    def __init__(self, device: str) -> None:
        self._device = device
        self._before: tuple[int, int] | None = None

    def start(self) -> None:
        self._before = start_peak(self._device)

    def taken(self) -> Taken | None:
        before, after = self._before, peak_since(self._device)
        if before is None or after is None:
            return None
        return Taken(max(0, after[0] - before[0]), max(0, after[1] - before[1]))


class ResidentMeter:
    """Of main memory, by what the kernel says of this process.

    Free heap is given back first, so that whatever a run touches counts, whichever library allocates it. That costs a
    tenth of a millisecond and more, and pages that the next run needs again. Pages of files and of shared memory are
    left out, as inputs and outputs are in a lane's segment; and so is as much as a run takes that does nothing.
    """

    is_cheap = False

    def __init__(self) -> None:
        """Raises OSError where the kernel does not tell."""
        self._library = ctypes.CDLL(None)
        self._before = _Resident(0, 0, 0)
        self.start()
        self.taken()

    def start(self) -> None:
        self._library.malloc_trim(0)
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")  # from here on the high-water mark begins anew: proc(5)
        self._before = _resident()

    def taken(self) -> Taken:
        after, before = _resident(), self._before
        mapped_bytes = max(0, after.mapped_bytes - before.mapped_bytes)
        return Taken(max(0, after.peak_bytes - before.now_bytes - mapped_bytes - _OWN_BYTES))


@dataclass(frozen=True, slots=True)
class _Resident:
    """mapped_bytes: pages of files and of shared memory."""

    now_bytes: int
    peak_bytes: int
    mapped_bytes: int


def _resident() -> _Resident:
    """Raises OSError where a figure is missing."""
    with open(_STATUS) as file:
        lines = (line.partition(":") for line in file)
        found = {name: int(rest.split()[0]) * _KIB for name, _, rest in lines if name in _FIGURES}
    if len(found) < len(_FIGURES):
        raise OSError(f"{_STATUS} lacks one of {', '.join(sorted(_FIGURES))}")
    return _Resident(found["VmRSS"], found["VmHWM"], found["RssFile"] + found["RssShmem"])


_FIGURES = frozenset({"VmRSS", "VmHWM", "RssFile", "RssShmem"})


def meter_of(device: str) -> Meter | None:
    """What measures a device's memory; None where nothing does."""
    if device != "cpu":
        return CudaMeter(device)
    if sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "malloc_trim"):
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

    def measured(self, work: Callable[[], Result]) -> tuple[Result, Taken | None]:
        """Do something, and what it took at most; None where it was not alone. Raises what it raises."""
        begun = self._enter()
        try:
            if begun is None or self.meter is None:
                return work(), None
            self.meter.start()
            result = work()
            taken = self.meter.taken()
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

    The first is left out, as what it makes for itself is still there for the next. measures_all: whatever it costs.
    """

    def __init__(self, gauges: Gauges, *, measures_all: bool) -> None:
        self._gauges = gauges
        self._measures_all = measures_all or (gauges.meter is not None and gauges.meter.is_cheap)
        self._runs: dict[tuple[int, int], int] = {}

    def run(self, rows: int, input_bytes: int, work: Callable[[], Result]) -> tuple[Result, Taken | None]:
        """Do a run; what it took, where that was measured. Raises what the run raises."""
        is_first = not self._runs
        size = rows.bit_length(), (input_bytes // max(1, rows)).bit_length()
        count = self._runs[size] = self._runs.get(size, 0) + 1
        if is_first or not (self._measures_all or count <= _FIRST_RUNS or _is_power_of_four(count)):
            return self._gauges.beside(work), None
        return self._gauges.measured(work)


def _is_power_of_four(number: int) -> bool:
    return number.bit_count() == 1 and number.bit_length() % 2 == 1
