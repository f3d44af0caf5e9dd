"""Bytes of one device, and who holds them."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from moorage.domain.errors import MemoryExhausted, ModelTooLarge


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
        self._leased_by_kind = dict.fromkeys(LeaseKind, 0)

    @property
    def free_bytes(self) -> int:
        return self.capacity_bytes - self.leased_bytes

    @property
    def free_without_runs_bytes(self) -> int:
        """Bytes that would be free if every run now executing had ended: all but contexts and weights."""
        return self.free_bytes + self._leased_by_kind[LeaseKind.WORKSPACE]

    @property
    def leases(self) -> Iterable[Lease]:
        return self._leases

    def acquire(self, owner: str, kind: LeaseKind, size_bytes: int) -> Lease | None:
        """Lease bytes, or return None and change nothing if they are not free."""
        if size_bytes > self.free_bytes:
            return None
        lease = Lease(self.device, owner, kind, size_bytes)
        self._leases.add(lease)
        self._count(kind, size_bytes)
        return lease

    def resize(self, lease: Lease, size_bytes: int) -> bool:
        """Make a lease larger or smaller; False, and no change, if the growth is not free."""
        growth_bytes = size_bytes - lease.size_bytes
        if growth_bytes > self.free_bytes:
            return False
        lease.size_bytes = size_bytes
        self._count(lease.kind, growth_bytes)
        return True

    def too_large(self, what: str, needed_bytes: int) -> ModelTooLarge:
        """The refusal of what can never fit here."""
        return ModelTooLarge(what, device=self.device, needed_bytes=needed_bytes, capacity_bytes=self.capacity_bytes)

    def exhausted(self, what: str, needed_bytes: int, free_bytes: int) -> MemoryExhausted:
        """The refusal of what does not fit beside what is held. free_bytes: what it could have had."""
        return MemoryExhausted(what, device=self.device, needed_bytes=needed_bytes, free_bytes=free_bytes)

    def release(self, lease: Lease) -> None:
        """End a lease.

        Raises KeyError if it is not held: a second release is a bug, and hiding it would hide the leak.
        """
        self._leases.remove(lease)
        self._count(lease.kind, -lease.size_bytes)

    def _count(self, kind: LeaseKind, size_bytes: int) -> None:
        self.leased_bytes += size_bytes
        self._leased_by_kind[kind] += size_bytes

    def by_kind(self) -> dict[str, int]:
        """Leased bytes by kind, without the kinds that hold none."""
        return {kind.value: size_bytes for kind, size_bytes in self._leased_by_kind.items() if size_bytes}

    def check_integrity(self) -> None:
        """Recompute the sums from the live leases. Raises AssertionError where the ledger has drifted."""
        held = dict.fromkeys(LeaseKind, 0)
        for lease in self._leases:
            assert lease.size_bytes >= 0, f"{self.device}: {lease}"
            held[lease.kind] += lease.size_bytes
        assert held == self._leased_by_kind, f"{self.device}: {self._leased_by_kind} recorded, {held} held"
        total_bytes = sum(held.values())
        assert total_bytes == self.leased_bytes, f"{self.device}: {self.leased_bytes} recorded, {total_bytes} held"
        assert total_bytes <= self.capacity_bytes, f"{self.device}: {total_bytes} held of {self.capacity_bytes}"
