"""Looks at the devices again and again, and says how much of each others hold."""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from moorage.devices.readings import DeviceLost, DeviceReading, DeviceUnknown, Reading, others_bytes

log = logging.getLogger(__name__)


class Source(Protocol):
    """Where readings come from. `sample` returns within a bounded time, with a reading of every device."""

    def name_of(self, device: str) -> str: ...

    async def sample(self) -> Mapping[str, Reading]: ...


@dataclass(frozen=True, slots=True)
class Ours:
    """What is this server's own, and what of others it knows.

    pids: its worker processes. leased_bytes: what the ledger has leased to them on a device. held_bytes: what it has
    leased to processes outside.
    """

    pids: Callable[[], Collection[int]]
    leased_bytes: Callable[[str], int]
    held_bytes: Callable[[str], int]


@dataclass(frozen=True, slots=True)
class Listener:
    """Whom the monitor tells. Called in the loop, and must return at once.

    on_reading: device, total bytes, bytes that others hold; after every look. on_lost: device, reason; once.
    on_unknown: device; once: from now on nothing is known of others, and the configured budget stands. A device that
    is lost is lost until it is read again, whatever can't be told of it: a driver that is being reset can't be asked.
    """

    on_reading: Callable[[str, int, int], None]
    on_lost: Callable[[str, str], None]
    on_unknown: Callable[[str], None]


class _Standing(Enum):
    NEW = "new"
    READ = "read"
    LOST = "lost"
    UNKNOWN = "unknown"


class DeviceMonitor:
    """Samples the devices that have a driver to ask; a CPU device has none and is left out.

    Every change of a device's standing (read, lost, not to be told) is logged once.
    """

    def __init__(
        self, devices: Collection[str], source: Source, ours: Ours, listener: Listener, interval_s: float = 1.0
    ) -> None:
        self._source = source
        self._ours = ours
        self._listener = listener
        self._interval_s = interval_s
        self._standings = dict.fromkeys(monitored(devices), _Standing.NEW)

    async def run(self) -> None:
        """Look every interval_s until cancelled; at once returns where there is nothing to look at.

        Cancellation: ends it; a call that the source has under way is not waited for.
        """
        while self._standings:
            await self._look()
            await asyncio.sleep(self._interval_s)

    async def _look(self) -> None:
        # What was ours at either end of the sample is ours: a worker that just ended, or a lease that was just given
        # back, must not look like somebody else's memory. Likewise for what is held.
        pids = set(self._ours.pids())
        before = {device: self._ledger(device) for device in self._standings}
        readings = await self._source.sample()
        pids.update(self._ours.pids())
        for device, (leased_bytes, held_bytes) in before.items():
            leased_after_bytes, held_after_bytes = self._ledger(device)
            ledger = max(leased_bytes, leased_after_bytes), max(held_bytes, held_after_bytes)
            self._take(readings[device], pids, *ledger)

    def _ledger(self, device: str) -> tuple[int, int]:
        """Bytes leased to our own processes, and to others."""
        return self._ours.leased_bytes(device), self._ours.held_bytes(device)

    def _take(self, reading: Reading, pids: Collection[int], leased_bytes: int, held_bytes: int) -> None:
        match reading:
            case DeviceReading(device=device, total_bytes=total_bytes):
                self._enter(device, _Standing.READ, _how(reading, self._source.name_of(device)))
                foreign_bytes = others_bytes(reading, pids, leased_bytes, held_bytes)
                self._listener.on_reading(device, total_bytes, foreign_bytes)
            case DeviceLost(device=device, reason=reason):
                if self._enter(device, _Standing.LOST, reason):
                    self._listener.on_lost(device, reason)
            case DeviceUnknown(device=device, reason=reason):
                if self._standings[device] is not _Standing.LOST and self._enter(device, _Standing.UNKNOWN, reason):
                    self._listener.on_unknown(device)

    def _enter(self, device: str, standing: _Standing, detail: str) -> bool:
        """Whether this is a change."""
        before, self._standings[device] = self._standings[device], standing
        if before is not standing:
            _log_change(device, before, standing, detail)
        return before is not standing


def monitored(devices: Collection[str]) -> tuple[str, ...]:
    """The devices that have a driver to ask."""
    return tuple(device for device in devices if device.startswith("cuda:"))


def _how(reading: DeviceReading, name: str) -> str:
    return name if reading.processes is not None else f"{name}; it does not tell processes apart, so the ledger does"


def _log_change(device: str, before: _Standing, standing: _Standing, detail: str) -> None:
    match standing:
        case _Standing.LOST:
            log.warning("%s is lost: %s", device, detail)
        case _Standing.UNKNOWN:
            log.warning("%s: what others hold can't be told, so the configured budget stands: %s", device, detail)
        case _Standing.READ if before is _Standing.LOST:
            log.warning("%s is back: what others hold is read from %s", device, detail)
        case _:
            log.info("%s: what others hold is read from %s", device, detail)
