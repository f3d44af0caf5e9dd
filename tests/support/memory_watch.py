"""Looking at memory while something else goes on: a device's ledger, and what a process really holds."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import psutil

from moorage_client import DeviceStatus, MoorageClientError, Snapshot, SyncClient

_INTERVAL_S = 0.05  # the least that the server allows


def device_in(snapshot: Snapshot, name: str) -> DeviceStatus:
    """One device's ledger."""
    (found,) = (device for device in snapshot.devices if device.name == name)
    return found


def leased_bytes(device: DeviceStatus) -> int:
    """All that is leased of a device."""
    return sum(device.leased_bytes.values())


@dataclass
class LedgerWatch:
    """What WatchSnapshot told. snapshots: in order. failure: how the watch ended, if by itself."""

    snapshots: list[Snapshot] = field(default_factory=list)
    failure: Exception | None = None

    def most_leased_bytes(self, device: str) -> int:
        """The most that was ever seen leased."""
        return max(leased_bytes(device_in(snapshot, device)) for snapshot in self.snapshots)

    def over_capacity(self, device: str) -> list[DeviceStatus]:
        """The moments at which more was leased than there is."""
        seen = [device_in(snapshot, device) for snapshot in self.snapshots]
        return [status for status in seen if leased_bytes(status) > status.capacity_bytes]


@contextmanager
def watching_ledger(target: str) -> Iterator[LedgerWatch]:
    """Follow a server's snapshots for the length of a block. Raises AssertionError where the watch broke off."""
    watch = LedgerWatch()
    leaving = threading.Event()
    with SyncClient(target) as client:
        thread = threading.Thread(target=_follow, args=(client, watch, leaving), daemon=True)
        thread.start()
        try:
            yield watch
        finally:
            leaving.set()
            client.close()
            thread.join(timeout=10.0)
    assert watch.failure is None, watch.failure
    assert watch.snapshots


def _follow(client: SyncClient, watch: LedgerWatch, leaving: threading.Event) -> None:
    try:
        for snapshot in client.watch(_INTERVAL_S):
            watch.snapshots.append(snapshot)
    except MoorageClientError as error:
        if not leaving.is_set():
            watch.failure = error


@dataclass
class ResidentWatch:
    """What a process held of real memory. peak_bytes: the most. samples: how often it was looked at."""

    base_bytes: int
    peak_bytes: int = 0
    samples: int = 0


@contextmanager
def watching_resident(process: psutil.Process, every_s: float = 0.003) -> Iterator[ResidentWatch]:
    """Look at a process's resident memory every few milliseconds for the length of a block."""
    watch = ResidentWatch(process.memory_info().rss)
    with _repeating(lambda: _look(process, watch), every_s):
        yield watch


def _look(process: psutil.Process, watch: ResidentWatch) -> None:
    watch.peak_bytes = max(watch.peak_bytes, process.memory_info().rss)
    watch.samples += 1


@contextmanager
def _repeating(action: Callable[[], None], every_s: float) -> Iterator[None]:
    leaving = threading.Event()

    def work() -> None:
        while not leaving.wait(every_s):
            action()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        leaving.set()
        thread.join(timeout=10.0)


def settled_resident_bytes(process: psutil.Process, within_s: float = 10.0) -> int:
    """What a process holds once that stays the same for a quarter of a second."""
    deadline_s = time.monotonic() + within_s
    before = -1
    while (now := process.memory_info().rss) != before:
        assert time.monotonic() < deadline_s, f"resident memory does not settle: {before}, {now}"
        before = now
        time.sleep(0.25)
    return now
