"""Which device a model goes to, and whose process it runs in."""

from collections.abc import Iterable
from fnmatch import fnmatchcase

from moorage.domain.model import Isolation, ModelKey, ModelSpec
from moorage.scheduling.budget import DeviceBudget


def choose_device(spec: ModelSpec, budgets: Iterable[DeviceBudget]) -> DeviceBudget | None:
    """The allowed device with the most free bytes, by name where they are equal; None if none is allowed."""
    allowed = [budget for budget in budgets if any(fnmatchcase(budget.device, pattern) for pattern in spec.devices)]
    return min(allowed, key=lambda budget: (-budget.free_bytes, budget.device), default=None)


def worker_of(key: ModelKey, spec: ModelSpec, device: str) -> str:
    """The name of the process that a model runs in: its device's, or its own."""
    return device if spec.isolation is Isolation.SHARED else f"{device}/{key}"


def expected_weights_bytes(spec: ModelSpec) -> int:
    """Bytes to lease before anything is measured: what is declared, else the size of the files."""
    declared_bytes = spec.memory.weights_bytes
    return spec.weights_hint_bytes if declared_bytes is None else declared_bytes
