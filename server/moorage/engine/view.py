"""Builds the snapshot from the live state."""

from collections.abc import Mapping
from dataclasses import asdict

from moorage.domain.model import Loading, ModelState
from moorage.engine.catalog import Catalog, Serving
from moorage.engine.engine import Engine
from moorage.engine.snapshot import (
    BrokenModel,
    DeviceSnapshot,
    ModelSnapshot,
    ResidencyCounts,
    ServerSnapshot,
    UnderstudySnapshot,
)
from moorage.scheduling.admission import is_ready
from moorage.scheduling.budget import LeaseKind
from moorage.scheduling.records import ModelRecord
from moorage.scheduling.state import DeviceRecord, State


def take_snapshot(engine: Engine, catalog: Catalog, *, started: bool) -> ServerSnapshot:
    """Freeze what views show. started: the eager models have had their turn."""
    state = engine.scheduler.state
    models = tuple(_model(engine, serving) for serving in catalog.all())
    return ServerSnapshot(
        models=models,
        broken=tuple(BrokenModel(name, reason) for name, reason in sorted(catalog.broken.items())),
        devices=tuple(_device(device) for _, device in sorted(state.devices.items())),
        ready=started and _serves(models, catalog.broken) and not state.draining,
        draining=state.draining,
    )


def _serves(models: tuple[ModelSnapshot, ...], broken: Mapping[str, str]) -> bool:
    """Whether the server is of use: one of the models that it is to have in service can serve.

    Models that are loaded only when told to don't count until they are; a server of nothing else waits to be told,
    which it is only if it is ready.
    """
    expected = [model for model in models if not _waits_to_be_told(model)]
    if expected:
        return any(model.ready for model in expected)
    return bool(models) or not broken


def _waits_to_be_told(model: ModelSnapshot) -> bool:
    return model.spec.loading is Loading.EXPLICIT and model.state is ModelState.UNLOADED


def _model(engine: Engine, serving: Serving) -> ModelSnapshot:
    state = engine.scheduler.state
    record = state.models.get(serving.key)
    return ModelSnapshot(
        key=serving.key,
        spec=serving.spec,
        state=record.state if record else ModelState.UNLOADED,
        ready=record is not None and is_ready(state, record) and not state.draining,
        reason=record.reason if record else "unloaded",
        device=record.device if record else None,
        leased_bytes=_leased(record) if record else {},
        waiting_rows=record.queue.rows if record else 0,
        statistics=engine.statistics.of(serving.key),
        share=record.share if record else serving.spec.share,
        host_bytes=_host_bytes(record) if record else 0,
        running=_running(record) if record else 0,
        residency=ResidencyCounts(**asdict(record.counts)) if record else ResidencyCounts(),
        understudies=_understudies(state, record) if record else (),
    )


def _understudies(state: State, record: ModelRecord) -> tuple[UnderstudySnapshot, ...]:
    return tuple(_understudy(device, state.models[key]) for device, key in sorted(record.understudies.items()))


def _understudy(device: str, record: ModelRecord) -> UnderstudySnapshot:
    return UnderstudySnapshot(
        version=str(record.key).removeprefix(f"{record.key.name}/"),
        state=record.state,
        reason=record.reason,
        device=device,
        leased_bytes=_leased(record),
        host_bytes=_host_bytes(record),
        waiting_rows=record.queue.rows,
        running=_running(record),
    )


def _leased(record: ModelRecord) -> dict[str, int]:
    """Bytes on the device, by kind, without the kinds that hold none."""
    leased = {
        LeaseKind.WEIGHTS: [record.weights],
        LeaseKind.WORKSPACE: [*(run.workspace for run in record.runs), record.first_run],
        LeaseKind.STATE: [entry.state for entry in record.active.values()],
    }
    sums = {kind.value: sum(lease.size_bytes for lease in leases if lease) for kind, leases in leased.items()}
    return {kind: size_bytes for kind, size_bytes in sums.items() if size_bytes}


def _host_bytes(record: ModelRecord) -> int:
    leases = [record.host, *(entry.host for entry in record.entries)]
    return sum(lease.size_bytes for lease in leases if lease is not None)


def _running(record: ModelRecord) -> int:
    if record.active:
        return len(record.active)
    return sum(len(run.entries) for run in record.runs)


def _device(device: DeviceRecord) -> DeviceSnapshot:
    return DeviceSnapshot(
        name=device.name,
        capacity_bytes=device.budget.capacity_bytes,
        leased_bytes=device.budget.by_kind(),
        configured_bytes=device.budget.configured_bytes,
        host_capacity_bytes=device.host.capacity_bytes,
        host_leased_bytes=device.host.leased_bytes,
        run_slots=device.limits.run_slots,
        running=device.runs,
        waiting=len(device.arriving) + len(device.ready),
    )
