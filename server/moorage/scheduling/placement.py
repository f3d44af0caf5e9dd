"""Which device a model goes to, and whose process it runs in."""

from collections.abc import Mapping
from fnmatch import fnmatchcase

from moorage.domain.model import Isolation, ModelKey, ModelSpec
from moorage.scheduling.budget import DeviceBudget


def expected_weights_bytes(spec: ModelSpec) -> int:
    """Bytes to lease before anything is measured: what is declared, else the size of the files."""
    declared_bytes = spec.memory.weights_bytes
    return spec.weights_hint_bytes if declared_bytes is None else declared_bytes


def least_bytes(spec: ModelSpec, context_bytes: int) -> int:
    """What serving the model takes at least: its worker's own memory, the weights, and a run of one row."""
    return context_bytes + expected_weights_bytes(spec) + spec.memory.workspace_bytes(1)


def choose_device(
    spec: ModelSpec, budgets: Mapping[str, DeviceBudget], context_bytes: Mapping[str, int]
) -> DeviceBudget | None:
    """The allowed device with the most free bytes, among those that could hold the model at all.

    If none could, the largest allowed one, which is the best to name in an error; None if none is allowed.
    Equal devices are told apart by name.
    """
    allowed = [budget for name, budget in budgets.items() if _allows(spec, name)]
    large_enough = [
        budget for budget in allowed if least_bytes(spec, context_bytes[budget.device]) <= budget.capacity_bytes
    ]
    if large_enough:
        return min(large_enough, key=lambda budget: (-budget.free_bytes, budget.device))
    return min(allowed, key=lambda budget: (-budget.capacity_bytes, budget.device), default=None)


def _allows(spec: ModelSpec, device: str) -> bool:
    return any(fnmatchcase(device, pattern) for pattern in spec.devices)


def worker_of(key: ModelKey, spec: ModelSpec, device: str) -> str:
    """The name of the process that a model runs in: its device's, or its own."""
    return device if spec.isolation is Isolation.SHARED else f"{device}/{key}"
