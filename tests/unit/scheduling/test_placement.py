import pytest

from moorage.domain.model import Isolation, ModelKey, ModelSpec
from moorage.scheduling.budget import DeviceBudget, LeaseKind
from moorage.scheduling.placement import choose_device, expected_weights_bytes, least_bytes, worker_of
from tests.support.scheduling import make_spec


def choose(spec: ModelSpec, **devices: tuple[int, int]) -> str | None:
    """Devices are given as (capacity, leased)."""
    budgets = {name: DeviceBudget(name, capacity_bytes) for name, (capacity_bytes, _) in devices.items()}
    for name, (_, leased_bytes) in devices.items():
        budgets[name].acquire("other", LeaseKind.WEIGHTS, leased_bytes)
    chosen = choose_device(spec, budgets, dict.fromkeys(budgets, 0))
    return chosen.device if chosen else None


@pytest.mark.parametrize(
    ("patterns", "devices", "chosen"),
    [
        (("*",), {"cuda0": (50, 0), "cuda1": (50, 10)}, "cuda0"),
        (("*",), {"cuda0": (50, 20), "cuda1": (50, 10)}, "cuda1"),
        (("*",), {"cuda1": (50, 0), "cuda0": (50, 0)}, "cuda0"),
        (("cuda*",), {"cpu": (99, 0), "cuda0": (50, 0)}, "cuda0"),
        (("cpu", "cuda1"), {"cpu": (20, 0), "cuda0": (99, 0), "cuda1": (30, 0)}, "cuda1"),
        (("tpu*",), {"cpu": (99, 0)}, None),
        # Only the busy one is large enough.
        (("*",), {"cpu": (9, 0), "cuda0": (50, 45)}, "cuda0"),
        # None is: the largest is named.
        (("*",), {"cpu": (8, 0), "cuda0": (9, 5)}, "cuda0"),
    ],
)
def test_choose_device(patterns: tuple[str, ...], devices: dict[str, tuple[int, int]], chosen: str | None) -> None:
    assert choose(make_spec(weights=10, devices=patterns), **devices) == chosen


@pytest.mark.parametrize(("isolation", "worker"), [(Isolation.SHARED, "cuda:0"), (Isolation.DEDICATED, "cuda:0/m/2+1")])
def test_worker_of(isolation: Isolation, worker: str) -> None:
    assert worker_of(ModelKey("m", 2, 1), make_spec(isolation=isolation), "cuda:0") == worker


@pytest.mark.parametrize(("weights", "hint", "expected"), [(None, 7, 7), (3, 7, 3), (0, 7, 0)])
def test_what_is_declared_counts_before_what_is_guessed(weights: int | None, hint: int, expected: int) -> None:
    assert expected_weights_bytes(make_spec(weights=weights, hint=hint)) == expected


def test_least_bytes_has_room_for_one_row() -> None:
    assert least_bytes(make_spec(weights=10, fixed=5, per_row=2), context_bytes=100) == 117
