import pytest

from moorage.scheduling.budget import DeviceBudget, Lease, LeaseKind


def leased(budget: DeviceBudget, kind: LeaseKind, size_bytes: int) -> Lease:
    lease = budget.acquire("owner", kind, size_bytes)
    assert lease is not None
    return lease


def test_leases_up_to_the_last_byte_and_no_further() -> None:
    budget = DeviceBudget("cpu", 10)
    leased(budget, LeaseKind.WEIGHTS, 10)
    assert budget.free_bytes == 0
    assert budget.acquire("owner", LeaseKind.WORKSPACE, 1) is None
    assert budget.acquire("owner", LeaseKind.WORKSPACE, 0) is not None
    budget.check_integrity()


def test_a_second_release_is_an_error() -> None:
    budget = DeviceBudget("cpu", 10)
    lease = leased(budget, LeaseKind.WEIGHTS, 4)
    budget.release(lease)
    with pytest.raises(KeyError):
        budget.release(lease)
    assert budget.free_bytes == 10


@pytest.mark.parametrize(("size_bytes", "done", "free_bytes"), [(2, True, 8), (10, True, 0), (11, False, 6)])
def test_resize(size_bytes: int, done: bool, free_bytes: int) -> None:
    budget = DeviceBudget("cpu", 10)
    lease = leased(budget, LeaseKind.WEIGHTS, 4)
    assert budget.resize(lease, size_bytes) is done
    assert budget.free_bytes == free_bytes
    budget.check_integrity()


def test_tells_apart_what_it_is_leased_for() -> None:
    budget = DeviceBudget("cpu", 20)
    leased(budget, LeaseKind.CONTEXT, 1)
    leased(budget, LeaseKind.WEIGHTS, 2)
    leased(budget, LeaseKind.WORKSPACE, 4)
    assert budget.by_kind() == {"context": 1, "weights": 2, "workspace": 4}
    assert budget.free_bytes == 13


def test_integrity_notices_a_lease_changed_behind_its_back() -> None:
    budget = DeviceBudget("cpu", 10)
    leased(budget, LeaseKind.WEIGHTS, 4).size_bytes = 5
    with pytest.raises(AssertionError, match="recorded"):
        budget.check_integrity()
