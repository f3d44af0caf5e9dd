"""What measures a device's memory."""

from dataclasses import dataclass
from typing import Protocol

from moorage.workers.runtimes import peak_since, start_peak


@dataclass(frozen=True, slots=True)
class Taken:
    """What a run took at most. reserved_bytes: what an allocator took of the device for it; None without one."""

    peak_bytes: int
    reserved_bytes: int | None = None


class Meter(Protocol):
    """Measures the most that this process takes between two calls.

    is_cheap: whether every run can be measured.
    """

    is_cheap: bool

    def start(self, *, thorough: bool) -> None:
        """thorough: as exactly as can be, whatever that costs."""
        ...

    def taken(self) -> Taken | None:
        """Since start, beyond what was taken then. None where that can't be told after all."""
        ...

    def stop(self) -> None:
        """Follows every start, whether anything was taken or not."""
        ...


class CudaMeter:
    """Of a CUDA device, by torch's allocator."""

    is_cheap = True

    def __init__(self, device: str) -> None:
        self._device = device
        self._before: tuple[int, int] | None = None

    def start(self, *, thorough: bool) -> None:
        self._before = start_peak(self._device)

    def taken(self) -> Taken | None:
        before, after = self._before, peak_since(self._device)
        if before is None or after is None:
            return None
        return Taken(max(0, after[0] - before[0]), max(0, after[1] - before[1]))

    def stop(self) -> None: ...
