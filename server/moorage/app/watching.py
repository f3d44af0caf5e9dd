"""Joins the device monitor to the engine: what other processes take of a card is not ours to give."""

import logging
import os
from functools import partial

from moorage.config import Settings
from moorage.devices.monitor import DeviceMonitor, Listener, Ours, monitored
from moorage.devices.nvml import NvmlSource
from moorage.devices.visible import cuda_environment
from moorage.engine.engine import Engine
from moorage.engine.inquiry import leased_bytes
from moorage.scheduling.budget import LeaseKind
from moorage.scheduling.events import CapacityChanged
from moorage.workers.pool import WorkerPool

log = logging.getLogger(__name__)


async def watch_devices(settings: Settings, engine: Engine, pool: WorkerPool) -> None:
    """Have capacities follow what other processes hold, until cancelled; not where there is nothing to watch."""
    names = monitored(settings.devices)
    if not names:
        return
    source = NvmlSource(names, {**cuda_environment(), **os.environ})
    capacities = Capacities(settings, engine, pool)
    ours = Ours(lambda: set(pool.pids.values()), partial(own_bytes, engine), partial(held_bytes, engine))
    listener = Listener(capacities.read, capacities.lost, capacities.unknown)
    try:
        await DeviceMonitor(names, source, ours, listener).run()
    finally:
        source.close()


def held_bytes(engine: Engine, device: str) -> int:
    """What the ledger has leased on a device to processes outside."""
    return engine.scheduler.state.devices[device].budget.by_kind().get(LeaseKind.HELD.value, 0)


def own_bytes(engine: Engine, device: str) -> int:
    """What it has leased to our own workers and their models."""
    return leased_bytes(engine, device) - held_bytes(engine, device)


class Capacities:
    """From readings to what each device offers: the budget, or what is left of the whole if that is less."""

    def __init__(self, settings: Settings, engine: Engine, pool: WorkerPool) -> None:
        self._settings = settings
        self._engine = engine
        self._pool = pool
        self._last: dict[str, int] = {}

    def read(self, device: str, total_bytes: int, others_bytes: int) -> None:
        """Others have that much of a device now, beyond what is held for them."""
        limits = self._settings.devices[device]
        self._set(device, min(limits.budget_bytes, total_bytes - others_bytes) - limits.reserve_bytes)

    def lost(self, device: str, reason: str) -> None:
        """A device is gone: nothing new is begun on it until it comes back."""
        self._set(device, 0)

    def unknown(self, device: str) -> None:
        """Nothing can be told of others: the configured budget stands."""
        limits = self._settings.devices[device]
        self._set(device, limits.budget_bytes - limits.reserve_bytes)

    def _set(self, device: str, capacity_bytes: int) -> None:
        before_bytes = self._last.get(device)
        if capacity_bytes == before_bytes:
            return
        self._last[device] = capacity_bytes
        self._engine.post(CapacityChanged(device, max(0, capacity_bytes)))
        if before_bytes is not None and capacity_bytes < before_bytes:
            self._give_back(device)

    def _give_back(self, device: str) -> None:
        """What workers have cached and don't use is better had by those who need it."""
        for name in self._pool.pids:
            if name == device or name.startswith(f"{device}/"):
                self._pool.give_back(name)
