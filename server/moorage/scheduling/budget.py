"""Bytes of one device, and who holds them."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class LeaseKind(StrEnum):
    """What leased bytes are for: a worker process's overhead, a model's weights, or one run's memory."""

    CONTEXT = "context"
    WEIGHTS = "weights"
    WORKSPACE = "workspace"


@dataclass(slots=True, eq=False)
class Lease:
    """Bytes held by one owner on one device. Ends exactly once, by DeviceBudget.release."""

    device: str
    owner: str
    kind: LeaseKind
    size_bytes: int


class DeviceBudget:
    """The ledger of one device. At every moment free + leased = capacity, and neither is negative."""

    def __init__(self, device: str, capacity_bytes: int) -> None:
        self.device = device
        self.capacity_bytes = capacity_bytes
        self.leased_bytes = 0
        self._leases: set[Lease] = set()

    @property
    def free_bytes(self) -> int:
        return self.capacity_bytes - self.leased_bytes

    @property
    def leases(self) -> Iterable[Lease]:
        return self._leases

    def acquire(self, owner: str, kind: LeaseKind, size_bytes: int) -> Lease | None:
        """Lease bytes, or return None and change nothing if they are not free."""
        if size_bytes > self.free_bytes:
            return None
        lease = Lease(self.device, owner, kind, size_bytes)
        self._leases.add(lease)
        self.leased_bytes += size_bytes
        return lease

    def resize(self, lease: Lease, size_bytes: int) -> bool:
        """Make a lease larger or smaller; False, and no change, if the growth is not free."""
        growth = size_bytes - lease.size_bytes
        if growth > self.free_bytes:
            return False
        lease.size_bytes = size_bytes
        self.leased_bytes += growth
        return True

    def release(self, lease: Lease) -> None:
        """End a lease.

        Raises KeyError if it is not held: a second release is a bug, and hiding it would hide the leak.
        """
        self._leases.remove(lease)
        self.leased_bytes -= lease.size_bytes

    def by_kind(self) -> dict[str, int]:
        """Leased bytes by kind."""
        total: Counter[str] = Counter()
        for lease in self._leases:
            total[lease.kind.value] += lease.size_bytes
        return dict(total)

    def held_beyond_runs_bytes(self) -> int:
        """Bytes that do not come back when the runs now executing end: contexts and weights."""
        return sum(lease.size_bytes for lease in self._leases if lease.kind is not LeaseKind.WORKSPACE)

    def check_integrity(self) -> None:
        """Recompute the sums from the live leases. Raises AssertionError where the ledger has drifted."""
        total = sum(lease.size_bytes for lease in self._leases)
        assert total == self.leased_bytes, f"{self.device}: {self.leased_bytes} recorded, {total} held"
        assert 0 <= total <= self.capacity_bytes, f"{self.device}: {total} held of {self.capacity_bytes}"
