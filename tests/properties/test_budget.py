"""The ledger and the models' semaphores against the simplest account of them: a list of sizes."""

import os
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)

from moorage.scheduling.budget import EXECUTION_KINDS, DeviceBudget, Lease, LeaseKind, Want, acquire_all
from moorage.scheduling.semaphore import MemorySemaphore

EXAMPLES = int(os.environ.get("TEST_EXAMPLES", "2000"))

sizes = st.integers(0, 40)
kinds = st.sampled_from(LeaseKind)
owners = st.sampled_from([None, 0, 1])
wants = st.lists(st.tuples(kinds, st.integers(0, 25)), min_size=1, max_size=3)


@dataclass
class Held:
    """What a lease should be."""

    kind: LeaseKind
    size_bytes: int
    owner: int | None
    leaving: bool = False


class BudgetMachine(RuleBasedStateMachine):
    leases = Bundle("leases")

    @initialize(capacity_bytes=st.integers(0, 100), reserved_bytes=st.integers(0, 30))
    def begin(self, capacity_bytes: int, reserved_bytes: int) -> None:
        self.budget = DeviceBudget("cpu", capacity_bytes)
        self.shares = [MemorySemaphore("a", reserved_bytes=reserved_bytes), MemorySemaphore("b", limit_bytes=30)]
        self.held: dict[Lease, Held] = {}

    # The plain account.

    def sum(self, owner: int | None, *, executing: bool = False) -> int:
        of_it = [held for held in self.held.values() if held.owner == owner]
        return sum(held.size_bytes for held in of_it if not executing or held.kind in EXECUTION_KINDS)

    @property
    def leased_bytes(self) -> int:
        return sum(held.size_bytes for held in self.held.values())

    def joined(self, owner: int) -> bool:
        return self.shares[owner] in self.budget.shares

    def free_for(self, owner: int | None) -> int:
        kept = [self.shares[other] for other in (0, 1) if other != owner and self.joined(other)]
        kept_bytes = sum(max(0, share.reserved_bytes - self.sum(self.shares.index(share))) for share in kept)
        return max(0, self.budget.capacity_bytes - self.leased_bytes - kept_bytes)

    def within_limit(self, owner: int | None, growth_bytes: int) -> bool:
        limit_bytes = None if owner is None else self.shares[owner].limit_bytes
        return limit_bytes is None or self.sum(owner, executing=True) + growth_bytes <= limit_bytes

    def share(self, owner: int | None) -> MemorySemaphore | None:
        return None if owner is None else self.shares[owner]

    # What may happen.

    @rule(target=leases, asked=wants, owner=owners)
    def acquire(self, asked: list[tuple[LeaseKind, int]], owner: int | None) -> object:
        """All of it or nothing."""
        executing_bytes = sum(size for kind, size in asked if kind in EXECUTION_KINDS)
        fits = sum(size for _, size in asked) <= self.free_for(owner)
        fits = fits and (executing_bytes == 0 or self.within_limit(owner, executing_bytes))
        over = owner is not None and self.shares[owner].room_bytes < 0
        got = acquire_all([Want(self.budget, "owner", kind, size, self.share(owner)) for kind, size in asked])
        assert (got is not None) == (fits and not over)
        if got is None:
            return multiple()
        self.held |= {lease: Held(kind, size, owner) for lease, (kind, size) in zip(got, asked, strict=True)}
        return multiple(*got)

    @rule(lease=leases, size_bytes=sizes)
    def resize(self, lease: Lease, size_bytes: int) -> None:
        held = self.held[lease]
        fits = size_bytes - held.size_bytes <= self.free_for(held.owner)
        assert self.budget.resize(lease, size_bytes) == fits
        if fits:
            held.size_bytes = size_bytes

    @rule(lease=leases, size_bytes=sizes)
    def correct(self, lease: Lease, size_bytes: int) -> None:
        """It is taken already, whether it fits or not."""
        self.budget.correct(lease, size_bytes)
        self.held[lease].size_bytes = size_bytes

    @rule(lease=leases, leaving=st.booleans())
    def leave_or_stay(self, lease: Lease, leaving: bool) -> None:
        (self.budget.leave if leaving else self.budget.stay)(lease)
        self.held[lease].leaving = leaving

    @rule(lease=leases)
    def disown(self, lease: Lease) -> None:
        self.budget.disown(lease)
        self.held[lease].owner = None

    @rule(lease=consumes(leases))
    def release(self, lease: Lease) -> None:
        self.budget.release(lease)
        del self.held[lease]

    @rule(capacity_bytes=st.integers(0, 100))
    def change_capacity(self, capacity_bytes: int) -> None:
        self.budget.capacity_bytes = capacity_bytes

    @rule(owner=st.sampled_from([0, 1]))
    def join_or_part(self, owner: int) -> None:
        (self.budget.part if self.joined(owner) else self.budget.join)(self.shares[owner])

    @rule(owner=st.sampled_from([0, 1]), reserved_bytes=st.integers(0, 40), limit_bytes=st.none() | sizes)
    def change_share(self, owner: int, reserved_bytes: int, limit_bytes: int | None) -> None:
        """More is reserved only where it is free; a share that holds nothing here may be set to anything."""
        share, held_bytes = self.shares[owner], self.sum(owner)
        before = (share.reserved_bytes, share.limit_bytes)
        growth_bytes = max(0, reserved_bytes - held_bytes) - max(0, share.reserved_bytes - held_bytes)
        can = not self.joined(owner) or growth_bytes <= self.free_for(None)
        assert self.budget.change_share(share, reserved_bytes=reserved_bytes, limit_bytes=limit_bytes) == can
        after = (reserved_bytes, limit_bytes) if can else before
        assert (share.reserved_bytes, share.limit_bytes) == after

    @precondition(lambda self: self.held)
    @rule()
    def refuse(self) -> None:
        """An error names the largest holders first."""
        sizes_named = [holder.size_bytes for holder in self.budget.exhausted("it", 1, 0).holders]
        assert sizes_named == sorted((lease.size_bytes for lease in self.held), reverse=True)[: len(sizes_named)]

    # What always holds.

    @invariant()
    def the_sums_agree(self) -> None:
        self.budget.check_integrity()
        budget = self.budget
        assert set(budget.leases) == set(self.held)
        assert budget.leased_bytes == self.leased_bytes == sum(budget.by_kind().values())
        assert budget.free_bytes - budget.overdrawn_bytes == budget.capacity_bytes - self.leased_bytes
        assert budget.leaving_bytes == sum(held.size_bytes for held in self.held.values() if held.leaving)
        for lease, held in self.held.items():
            assert (lease.size_bytes, lease.kind, lease.leaving) == (held.size_bytes, held.kind, held.leaving)

    @invariant()
    def the_shares_agree(self) -> None:
        for owner, share in enumerate(self.shares):
            assert share.held_bytes == self.sum(owner)
            assert share.executing_bytes == self.sum(owner, executing=True)
            assert share.unfilled_bytes == max(0, share.reserved_bytes - self.sum(owner))
            assert self.budget.free_for(share) == self.free_for(owner)
        assert self.budget.free_for(None) == self.free_for(None)


@settings(max_examples=300, deadline=None)
@given(capacities=st.lists(st.integers(0, 50), min_size=2, max_size=3), asked=st.lists(st.integers(0, 30), max_size=6))
def test_over_several_devices_it_is_all_or_nothing(capacities: list[int], asked: list[int]) -> None:
    budgets = [DeviceBudget(f"cuda:{number}", capacity_bytes) for number, capacity_bytes in enumerate(capacities)]
    wants = [
        Want(budgets[number % len(budgets)], "model", LeaseKind.WEIGHTS, size_bytes)
        for number, size_bytes in enumerate(asked)
    ]
    sums = [sum(asked[number :: len(budgets)]) for number in range(len(budgets))]
    leases = acquire_all(wants)
    fits = all(needed <= capacity for needed, capacity in zip(sums, capacities, strict=True))
    assert (leases is not None) == fits
    assert [budget.leased_bytes for budget in budgets] == (sums if fits else [0] * len(budgets))
    for lease, want in zip(leases or (), wants, strict=False):
        assert (lease.device, lease.size_bytes) == (want.budget.device, want.size_bytes)
        want.budget.release(lease)
    assert not any(budget.leased_bytes for budget in budgets)


@pytest.mark.timeout(300 + EXAMPLES // 10)
def test_budget() -> None:
    run_state_machine_as_test(BudgetMachine, settings=settings(max_examples=EXAMPLES, deadline=None))
