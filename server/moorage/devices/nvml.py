"""NVIDIA cards, as their driver's management library (NVML) tells of them."""

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import psutil
import pynvml

from moorage.devices.own_thread import OwnThread, StillBusy
from moorage.devices.readings import DeviceLost, DeviceReading, DeviceUnknown, Reading
from moorage.devices.visible import LOST, NotVisible, find_card

_TRIES = 3


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds: for an answer; for one that has to open NVML first, which wakes the cards; between such openings."""

    answer_s: float = 2.0
    opening_s: float = 15.0
    reopening_s: float = 30.0


class NvmlSource:
    """Readings of cards ("cuda:0"), taken in a thread of its own, so that a driver that hangs holds up nobody.

    environment: the variables that the worker processes will see; CUDA_VISIBLE_DEVICES says which cards are meant.
    """

    def __init__(
        self, devices: Collection[str], environment: Mapping[str, str], patience: Patience | None = None
    ) -> None:
        self._devices = tuple(devices)
        self._patience = patience or Patience()
        self._cards = NvmlCards(devices, environment, self._patience.reopening_s)
        self._thread = OwnThread("nvml")

    def name_of(self, device: str) -> str:
        """Where a device's readings come from, for the log."""
        return f"NVML ({self._cards.description(device)})"

    async def sample(self) -> Mapping[str, Reading]:
        """A reading of every device, within a bounded time: while a call hangs, that nothing can be told.

        Cancellation: the wait ends, the call goes on in its thread.
        """
        limit_s = self._patience.opening_s if self._cards.is_opening_due else self._patience.answer_s
        try:
            return await self._thread.call(self._cards.read, limit_s)
        except StillBusy:
            return self._all_unknown("a call has not come back yet")
        except TimeoutError:
            return self._all_unknown(f"no answer within {limit_s:g} s")
        except Exception as error:  # the binding has stumbled over an answer: no reason to stop looking
            return self._all_unknown(f"an unexpected {error!r}")

    def close(self) -> None:
        """End the thread once it is free, without waiting for it."""
        self._thread.close(self._cards.close)

    def _all_unknown(self, reason: str) -> Mapping[str, Reading]:
        return {device: DeviceUnknown(device, f"NVML: {reason}") for device in self._devices}


class NvmlCards:
    """The same without a thread: every method may block for as long as the driver likes.

    A device is found once and then known by its UUID: another that takes its number is not taken for it. While
    something is amiss NVML is closed and opened again now and then, as a driver that was loaded anew demands.
    """

    def __init__(self, devices: Collection[str], environment: Mapping[str, str], reopening_s: float) -> None:
        self._devices = tuple(devices)
        self._environment = environment
        self._reopening_s = reopening_s
        self._uuids: dict[str, str] = {}
        self._handles: dict[str, Any] = {}
        self._faults: dict[str, Reading] = {}
        self._driver = "not open"
        self._is_open = False
        self._is_well = False
        self._opens_at_s = time.monotonic()

    @property
    def is_opening_due(self) -> bool:
        """Whether the next reading opens NVML first."""
        return not self._is_well and time.monotonic() >= self._opens_at_s

    def description(self, device: str) -> str:
        """The driver, and the card or slice that was found."""
        return f"driver {self._driver}, {self._uuids.get(device, 'no card found')}"

    def read(self) -> dict[str, Reading]:
        """A reading of every device; whatever NVML refuses is told in it."""
        if self.is_opening_due:
            self._reopen()
        readings = {device: self._read(device) for device in self._devices}
        self._is_well = all(isinstance(reading, DeviceReading) for reading in readings.values())
        return readings

    def close(self) -> None:
        """Give NVML back."""
        self._handles.clear()
        self._faults.clear()
        if self._is_open:
            self._is_open = False
            try:
                pynvml.nvmlShutdown()
            except pynvml.NVMLError:  # it may have failed for the very reason that it is closed
                return

    def _reopen(self) -> None:
        self._opens_at_s = time.monotonic() + self._reopening_s
        self.close()
        try:
            pynvml.nvmlInit()
            self._is_open = True
            self._driver = pynvml.nvmlSystemGetDriverVersion()
        except pynvml.NVMLError as error:
            self._faults = {device: _fault(device, "NVML cannot be opened", error) for device in self._devices}
            return
        for device in self._devices:
            self._find(device)

    def _find(self, device: str) -> None:
        try:
            self._handles[device] = self._handle(device)
        except NotVisible as reason:
            self._faults[device] = DeviceUnknown(device, f"not found: {reason}")
        except pynvml.NVMLError as error:
            is_gone = device in self._uuids and isinstance(error, pynvml.NVMLError_NotFound)
            gone = DeviceLost(device, f"{self._uuids.get(device)} is no longer there")
            self._faults[device] = gone if is_gone else _fault(device, "not found", error)

    def _handle(self, device: str) -> Any:
        if device in self._uuids:
            return pynvml.nvmlDeviceGetHandleByUUID(self._uuids[device])
        handle = find_card(int(device.removeprefix("cuda:")), self._environment)
        self._uuids[device] = pynvml.nvmlDeviceGetUUID(handle)
        return handle

    def _read(self, device: str) -> Reading:
        if device not in self._handles:
            return self._faults[device]
        try:
            return _reading(device, self._handles[device])
        except pynvml.NVMLError as error:
            return _fault(device, "its memory cannot be read", error)


def _fault(device: str, what: str, error: Exception) -> Reading:
    return DeviceLost(device, str(error)) if isinstance(error, LOST) else DeviceUnknown(device, f"{what}: {error}")


def _reading(device: str, handle: Any) -> DeviceReading:
    # Used bytes and processes are two calls. One that allocates or frees in between would seem to be somebody else.
    before = pynvml.nvmlDeviceGetMemoryInfo(handle)
    for _ in range(_TRIES):
        processes = _processes(handle)
        after = pynvml.nvmlDeviceGetMemoryInfo(handle)
        if after.used == before.used:
            break
        before = after
    return DeviceReading(device, int(after.total), int(after.used), processes, _utilization(handle))


def _processes(handle: Any) -> dict[int, int] | None:
    """Bytes by process, or None unless all are told and all are processes as this process numbers them.

    In a container a driver may list the host's numbers, by which ours would not be known, or ours with no bytes at all.
    """
    try:
        listed = [*pynvml.nvmlDeviceGetComputeRunningProcesses(handle), *_mps_clients(handle)]
    except LOST:
        raise
    except pynvml.NVMLError:
        return None
    if not all(process.usedGpuMemory and psutil.pid_exists(process.pid) for process in listed):
        return None
    return {int(process.pid): int(process.usedGpuMemory) for process in listed}


def _mps_clients(handle: Any) -> list[Any]:
    """Processes that compute through CUDA's Multi-Process Service, which are listed apart."""
    try:
        return list(pynvml.nvmlDeviceGetMPSComputeRunningProcesses(handle))
    except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_FunctionNotFound):
        return []


def _utilization(handle: Any) -> float | None:
    try:
        return float(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu) / 100
    except LOST:
        raise
    except pynvml.NVMLError:
        return None
