"""The ledger against the simplest account of it: a list of sizes."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from moorage.scheduling.budget import DeviceBudget, Lease, LeaseKind

sizes = st.integers(0, 40)


class BudgetMachine(RuleBasedStateMachine):
    leases = Bundle("leases")

    @initialize(capacity_bytes=st.integers(0, 100))
    def begin(self, capacity_bytes: int) -> None:
        self.budget = DeviceBudget("cpu", capacity_bytes)
        self.held: dict[Lease, int] = {}

    @rule(target=leases, kind=st.sampled_from(LeaseKind), size_bytes=sizes)
    def acquire(self, kind: LeaseKind, size_bytes: int) -> object:
        fits = size_bytes <= self.free_bytes
        lease = self.budget.acquire("owner", kind, size_bytes)
        assert (lease is not None) == fits
        if lease is None:
            return multiple()
        self.held[lease] = size_bytes
        return lease

    @rule(lease=leases, size_bytes=sizes)
    def resize(self, lease: Lease, size_bytes: int) -> None:
        fits = size_bytes - self.held[lease] <= self.free_bytes
        assert self.budget.resize(lease, size_bytes) == fits
        if fits:
            self.held[lease] = size_bytes
        assert lease.size_bytes == self.held[lease]

    @rule(lease=consumes(leases))
    def release(self, lease: Lease) -> None:
        self.budget.release(lease)
        del self.held[lease]

    @property
    def free_bytes(self) -> int:
        return self.budget.capacity_bytes - sum(self.held.values())

    @invariant()
    def agrees(self) -> None:
        self.budget.check_integrity()
        assert self.budget.free_bytes == self.free_bytes >= 0
        assert set(self.budget.leases) == set(self.held)
        runs_bytes = sum(size for lease, size in self.held.items() if lease.kind is LeaseKind.WORKSPACE)
        assert self.budget.free_without_runs_bytes == self.free_bytes + runs_bytes
        assert sum(self.budget.by_kind().values()) == self.budget.leased_bytes


def test_budget() -> None:
    run_state_machine_as_test(BudgetMachine, settings=settings(max_examples=200, deadline=None))
