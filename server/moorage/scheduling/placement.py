"""Which device a model goes to, and whose process it runs in."""

from collections.abc import Mapping
from fnmatch import fnmatchcase

from moorage.domain.model import Isolation, ModelKey, ModelSpec
from moorage.scheduling.records import ModelRecord
from moorage.scheduling.state import DeviceRecord


def expected_weights_bytes(model: ModelRecord) -> int:
    """Bytes to lease before a load: what was measured or is declared, the larger; else the size of the files."""
    declared_bytes, measured_bytes = model.spec.memory.weights_bytes, model.measured.weights_bytes
    if declared_bytes is None and measured_bytes is None:
        return model.spec.weights_hint_bytes
    return max(declared_bytes or 0, measured_bytes or 0)


def expected_state_bytes(model: ModelRecord) -> int:
    """Bytes to lease for a stepped request that begins; nothing for other models."""
    return max(model.spec.memory.state_bytes or 0, model.measured.state_bytes or 0)


def execution_bytes(model: ModelRecord, rows: int) -> int:
    """What a run of so many rows takes, of whatever shape, or the first step of a request."""
    state_bytes = expected_state_bytes(model)
    return model.workspaces.bytes_for(rows, beside_bytes=state_bytes) + state_bytes


def most_workspace_bytes(model: ModelRecord, device: DeviceRecord) -> float:
    """What a run and states could be given with nothing else on the device, within the model's own limit."""
    weights_bytes = model.weights.size_bytes if model.weights is not None else expected_weights_bytes(model)
    most_bytes = device.budget.configured_bytes - device.limits.context_bytes - weights_bytes
    limit_bytes = model.semaphore.limit_bytes
    return most_bytes if limit_bytes is None else min(most_bytes, limit_bytes)


def first_run_bytes(model: ModelRecord, rows: int | None = None) -> int:
    """What the first run takes of whoever waits for a model that comes in, or of so many rows; 0 where nobody waits."""
    if rows is None:
        if model.queue.head is None:
            return 0
        rows = model.queue.head.request.rows
    return within_limit(model, execution_bytes(model, rows))


def warmup_bytes(model: ModelRecord) -> int:
    """What the largest run of a model's warm-up takes besides the weights; 0 where it has none."""
    rows = max((run.rows for run in model.spec.warmup), default=0)
    return execution_bytes(model, rows) if rows else 0


def within_limit(model: ModelRecord, size_bytes: int) -> int:
    """So much of that as the model's own limit allows."""
    limit_bytes = model.semaphore.limit_bytes
    return size_bytes if limit_bytes is None else min(size_bytes, limit_bytes)


def least_bytes(model: ModelRecord, device: DeviceRecord) -> int:
    """What serving the model takes at least: its worker's own memory, the weights, and a run of one row."""
    held_bytes = max(expected_weights_bytes(model) + execution_bytes(model, 1), model.share.reserved_bytes)
    return device.limits.context_bytes + held_bytes


def candidates(model: ModelRecord, devices: Mapping[str, DeviceRecord]) -> list[DeviceRecord]:
    """The allowed devices that could hold the model with nothing else on them, the one with the most free bytes first.

    Equal devices are told apart by name.
    """
    large_enough = [
        device
        for name, device in devices.items()
        if allows(model.spec, name) and least_bytes(model, device) <= device.budget.configured_bytes
    ]
    return sorted(large_enough, key=lambda device: (-device.budget.free_for(None), device.name))


def elsewhere(model: ModelRecord, devices: Mapping[str, DeviceRecord], tried: tuple[str, ...]) -> list[str]:
    """Where else a request could be computed that found no memory on some devices: on those that its model may go to,
    and last on its fallback."""
    names = [device.name for device in candidates(model, devices) if device.name not in tried]
    fallback = devices.get(model.spec.fallback)
    if fallback is None or fallback.name in (*names, *tried):
        return names
    fits = least_bytes(model, fallback) <= fallback.budget.configured_bytes
    return [*names, fallback.name] if fits else names


def largest_device(spec: ModelSpec, devices: Mapping[str, DeviceRecord]) -> DeviceRecord | None:
    """The largest allowed device, which is the best to name in an error; None if none is allowed."""
    allowed = [device for name, device in devices.items() if allows(spec, name)]
    return min(allowed, key=lambda device: (-device.budget.configured_bytes, device.name), default=None)


def allows(spec: ModelSpec, device: str) -> bool:
    return any(fnmatchcase(device, pattern) for pattern in spec.devices)


def worker_of(key: ModelKey, spec: ModelSpec, device: str) -> str:
    """The name of the process that a model runs in: its device's, or its own."""
    return device if spec.isolation is Isolation.SHARED else f"{device}/{key}"
