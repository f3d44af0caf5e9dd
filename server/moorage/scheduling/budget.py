"""Bytes of one device, and who holds them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from moorage.domain.errors import Held, MemoryExhausted, ModelTooLarge
from moorage.scheduling.semaphore import MemorySemaphore

# So many holders are named in an error.
_NAMED_HOLDERS = 8


class LeaseKind(StrEnum):
    """What leased bytes are for.

    context: a worker process's overhead. weights: a model's, while it is in memory. workspace: one run's or step's.
    state: what a stepped request keeps between steps. held: taken by a process outside.
    """

    CONTEXT = "context"
    WEIGHTS = "weights"
    WORKSPACE = "workspace"
    STATE = "state"
    HELD = "held"


EXECUTION_KINDS = frozenset({LeaseKind.WORKSPACE, LeaseKind.STATE})


@dataclass(slots=True, eq=False)
class Lease:
    """Bytes held by one owner on one device. Ends exactly once, by DeviceBudget.release.

    share: the model's semaphore that it counts against, if it is a model's.
    leaving: its holder was told to free it, and has not confirmed yet.
    """

    device: str
    owner: str
    kind: LeaseKind
    size_bytes: int
    share: MemorySemaphore | None = None
    leaving: bool = False


class DeviceBudget:
    """The ledger of one device. free + leased = capacity, unless the capacity fell below what was leased already.

    configured_bytes: what the device offers at its best; capacity_bytes is less while others use it.
    """

    def __init__(self, device: str, capacity_bytes: int) -> None:
        self.device = device
        self.configured_bytes = capacity_bytes
        self.capacity_bytes = capacity_bytes
        self.leased_bytes = 0
        self.leaving_bytes = 0
        self._leases: set[Lease] = set()
        self._leased_by_kind = dict.fromkeys(LeaseKind, 0)
        # Sets that keep their order: the same events must always lead to the same actions.
        self._shares: dict[MemorySemaphore, None] = {}
        self._set_aside_bytes = 0

    @property
    def free_bytes(self) -> int:
        return max(0, self.capacity_bytes - self.leased_bytes)

    @property
    def overdrawn_bytes(self) -> int:
        """Leased beyond the capacity: others took what we had, or a model grew past its estimate."""
        return max(0, self.leased_bytes - self.capacity_bytes)

    @property
    def leases(self) -> Iterable[Lease]:
        return self._leases

    @property
    def shares(self) -> Iterable[MemorySemaphore]:
        return self._shares

    def free_for(self, share: MemorySemaphore | None, *, without_bytes: int = 0) -> int:
        """Bytes that this model could lease now: what is free, less what is kept for others.

        without_bytes: of its own leases, what would be released first.
        """
        free_bytes = self.capacity_bytes - self.leased_bytes + without_bytes
        if self._set_aside_bytes:
            free_bytes -= self._set_aside_bytes
            if share is not None and share in self._shares:
                free_bytes += share.unfilled_bytes
        return free_bytes if free_bytes > 0 else 0

    def join(self, share: MemorySemaphore) -> None:
        """Keep a model's reserved bytes for it from now on. Whether they are free is for the caller to see."""
        assert share not in self._shares
        self._shares[share] = None
        self._set_aside_bytes += share.unfilled_bytes

    def part(self, share: MemorySemaphore) -> None:
        """No longer keep anything for a model that holds nothing here."""
        del self._shares[share]
        self._set_aside_bytes -= share.unfilled_bytes

    def change_share(self, share: MemorySemaphore, *, reserved_bytes: int, limit_bytes: int | None) -> bool:
        """Set a model's bounds; False, and no change, if more is to be reserved than is free for it."""
        if share in self._shares:
            if self.missing_to_reserve(share, reserved_bytes) > 0:
                return False
            self._set_aside_bytes -= share.unfilled_bytes
        share.reserved_bytes = reserved_bytes
        share.limit_bytes = limit_bytes
        self._set_aside_bytes += share.unfilled_bytes if share in self._shares else 0
        return True

    def missing_to_reserve(self, share: MemorySemaphore, reserved_bytes: int) -> int:
        """What is not free of a reservation; of one for a model that holds nothing here, what exceeds the device."""
        if share not in self._shares:
            return max(0, reserved_bytes - self.configured_bytes)
        growth_bytes = max(0, reserved_bytes - share.held_bytes) - share.unfilled_bytes
        return max(0, growth_bytes - self.free_for(None))

    def acquire(
        self, owner: str, kind: LeaseKind, size_bytes: int, share: MemorySemaphore | None = None
    ) -> Lease | None:
        """Lease bytes, or return None and change nothing if they are not free for this owner."""
        if size_bytes > self.free_for(share):
            return None
        if share is not None and kind in EXECUTION_KINDS and size_bytes > share.room_bytes:
            return None
        return self._grant(owner, kind, size_bytes, share)

    def has_room_for(self, wants: Iterable["Want"]) -> bool:
        """Whether all of this could be leased here now. At most one model's share may be among it."""
        wants = tuple(wants)
        share = next((want.share for want in wants if want.share is not None), None)
        if sum(want.size_bytes for want in wants) > self.free_for(share):
            return False
        executing_bytes = sum(want.size_bytes for want in wants if want.kind in EXECUTION_KINDS)
        return share is None or executing_bytes <= share.room_bytes

    def _grant(self, owner: str, kind: LeaseKind, size_bytes: int, share: MemorySemaphore | None) -> Lease:
        lease = Lease(self.device, owner, kind, size_bytes, share)
        self._leases.add(lease)
        self._count(lease, size_bytes)
        return lease

    def resize(self, lease: Lease, size_bytes: int) -> bool:
        """Make a lease larger or smaller; False, and no change, if the growth is not free."""
        if size_bytes - lease.size_bytes > self.free_for(lease.share):
            return False
        self.correct(lease, size_bytes)
        return True

    def correct(self, lease: Lease, size_bytes: int) -> None:
        """Set a lease to what its owner really holds, free or not: the memory is taken already."""
        growth_bytes = size_bytes - lease.size_bytes
        lease.size_bytes = size_bytes
        self._count(lease, growth_bytes)

    def leave(self, lease: Lease) -> None:
        """Note that a lease's holder was told to free it: its bytes will come, and are not to be asked for twice."""
        if not lease.leaving:
            lease.leaving = True
            self.leaving_bytes += lease.size_bytes

    def stay(self, lease: Lease) -> None:
        """Take that back: it could not be freed."""
        if lease.leaving:
            lease.leaving = False
            self.leaving_bytes -= lease.size_bytes

    def disown(self, lease: Lease) -> None:
        """Charge a lease to nobody's share any more: its model is gone, and the bytes are not."""
        if lease.share is not None:
            self._count_for(lease.share, -lease.size_bytes, lease.kind)
            lease.share = None

    def release(self, lease: Lease) -> None:
        """End a lease.

        Raises KeyError if it is not held: a second release is a bug, and hiding it would hide the leak.
        """
        self._leases.remove(lease)
        self._count(lease, -lease.size_bytes)

    def _count(self, lease: Lease, growth_bytes: int) -> None:
        self.leased_bytes += growth_bytes
        self._leased_by_kind[lease.kind] += growth_bytes
        if lease.leaving:
            self.leaving_bytes += growth_bytes
        share = lease.share
        if share is not None:
            self._count_for(share, growth_bytes, lease.kind)

    def _count_for(self, share: MemorySemaphore, growth_bytes: int, kind: LeaseKind) -> None:
        if share.reserved_bytes == 0:  # the norm: nothing is set aside
            share.count(growth_bytes, executing=kind in EXECUTION_KINDS)
            return
        before_bytes = share.unfilled_bytes
        share.count(growth_bytes, executing=kind in EXECUTION_KINDS)
        if share in self._shares:
            self._set_aside_bytes += share.unfilled_bytes - before_bytes

    def by_kind(self) -> dict[str, int]:
        """Leased bytes by kind, without the kinds that hold none."""
        return {kind.value: size_bytes for kind, size_bytes in self._leased_by_kind.items() if size_bytes}

    def too_large(self, what: str, needed_bytes: int) -> ModelTooLarge:
        """The refusal of what can never fit here."""
        return ModelTooLarge(what, device=self.device, needed_bytes=needed_bytes, capacity_bytes=self.configured_bytes)

    def exhausted(
        self, what: str, needed_bytes: int, free_bytes: int, staying: Iterable[Lease] | None = None
    ) -> MemoryExhausted:
        """The refusal of what does not fit beside what is held.

        free_bytes: what it could have had. staying: beside these leases; without it, beside all.
        """
        held = [lease for lease in (self._leases if staying is None else staying) if lease.size_bytes]
        largest = sorted(held, key=lambda lease: (-lease.size_bytes, lease.owner, lease.kind))
        holders = tuple(Held(lease.owner, lease.kind.value, lease.size_bytes) for lease in largest[:_NAMED_HOLDERS])
        return MemoryExhausted(
            what, device=self.device, needed_bytes=needed_bytes, free_bytes=free_bytes, holders=holders
        )

    def check_integrity(self) -> None:
        """Recompute every sum from the live leases. Raises AssertionError where the ledger has drifted."""
        held = dict.fromkeys(LeaseKind, 0)
        by_share: dict[MemorySemaphore, int] = {}
        for lease in self._leases:
            assert lease.size_bytes >= 0, f"{self.device}: {lease}"
            held[lease.kind] += lease.size_bytes
            if lease.share is not None:
                by_share[lease.share] = by_share.get(lease.share, 0) + lease.size_bytes
        assert held == self._leased_by_kind, f"{self.device}: {self._leased_by_kind} recorded, {held} held"
        assert sum(held.values()) == self.leased_bytes, f"{self.device}: {self.leased_bytes} recorded, {held} held"
        leaving_bytes = sum(lease.size_bytes for lease in self._leases if lease.leaving)
        assert leaving_bytes == self.leaving_bytes, f"{self.device}: {self.leaving_bytes} recorded as leaving"
        assert all(share.held_bytes == size_bytes for share, size_bytes in by_share.items())
        set_aside_bytes = sum(share.unfilled_bytes for share in self._shares)
        assert set_aside_bytes == self._set_aside_bytes, f"{self.device}: {self._set_aside_bytes} recorded as set aside"


@dataclass(frozen=True, slots=True)
class Want:
    """A lease to be had together with others, or not at all."""

    budget: DeviceBudget
    owner: str
    kind: LeaseKind
    size_bytes: int
    share: MemorySemaphore | None = None


def acquire_all(wants: Sequence[Want]) -> list[Lease] | None:
    """Lease everything that is wanted, on however many devices, or change nothing and return None."""
    budgets = dict.fromkeys(want.budget for want in wants)
    if not all(budget.has_room_for(want for want in wants if want.budget is budget) for budget in budgets):
        return None
    leases = [want.budget.acquire(want.owner, want.kind, want.size_bytes, want.share) for want in wants]
    return [lease for lease in leases if lease is not None]
