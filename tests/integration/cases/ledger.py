"""A second observer: looks at the ledger all through a trial, and says whether it ever was as it must not be."""

import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from moorage_client import SyncClient
from moorage_client.status import DeviceStatus, ModelStatus, ResidencyCounts, Snapshot

PERIOD_S = 0.02


@dataclass
class Ledger:
    """states: how often each model was seen in each, as "name state". failures: what must not be.

    most_bytes: the most that each model was ever seen to hold, by kind.
    """

    client: SyncClient
    looks: int = 0
    states: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    most_bytes: defaultdict[str, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))

    def model(self, name: str) -> ModelStatus:
        """As it is now."""
        (found,) = [model for model in self.client.snapshot().models if model.name == name]
        return found

    def device(self) -> DeviceStatus:
        """The only one, as it is now."""
        (found,) = self.client.snapshot().devices
        return found

    def counts(self) -> dict[str, ResidencyCounts]:
        """Of every model, since the server started."""
        return {model.name: model.residency_counts for model in self.client.snapshot().models}

    def arrivals(self) -> int:
        """How often any model came into memory."""
        return sum(counts.loads + counts.restores for counts in self.counts().values())

    def evictions(self) -> dict[str, int]:
        """How often each model was put out, for those that ever were."""
        return {name: counts.evictions for name, counts in self.counts().items() if counts.evictions}

    def look(self) -> None:
        snapshot = self.client.snapshot()
        self.looks += 1
        self.states.update(f"{model.name} {model.state}" for model in snapshot.models)
        for model in snapshot.models:
            most = self.most_bytes[model.name]
            most.update({kind: max(size, most.get(kind, 0)) for kind, size in model.leased_bytes.items()})
        self.failures += _impossible(snapshot)


def _impossible(snapshot: Snapshot) -> Iterator[str]:
    for device in snapshot.devices:
        if sum(device.leased_bytes.values()) > device.capacity_bytes:
            yield f"{device.name}: leased {device.leased_bytes} of {device.capacity_bytes}"
        if device.host_leased_bytes > device.host_capacity_bytes:
            yield f"{device.name}: {device.host_leased_bytes} of {device.host_capacity_bytes} beside it"
    for model in snapshot.models:
        if model.running_requests and model.state != "resident":
            yield f"{model.name}: {model.state} under {model.running_requests} running requests"


@contextmanager
def ledger_watched(target: str) -> Iterator[Ledger]:
    """Look at a server's ledger 50 times a second during the block, and check what was seen at its end."""
    with SyncClient(target) as client:
        ledger = Ledger(client)
        stop = threading.Event()
        thread = threading.Thread(target=_watch, args=(ledger, stop))
        thread.start()
        try:
            yield ledger
        finally:
            stop.set()
            thread.join()
        assert ledger.looks, "nobody looked"
        assert not ledger.failures, ledger.failures[:5]


def _watch(ledger: Ledger, stop: threading.Event) -> None:
    done = False
    while not done:
        done = stop.wait(PERIOD_S)  # and once more after the end: a short block has been looked at, too
        try:
            ledger.look()
        except Exception as error:
            ledger.failures.append(f"{type(error).__name__}: {error}")
            return
