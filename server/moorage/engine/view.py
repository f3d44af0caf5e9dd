"""Builds the snapshot from the live state."""

from moorage.domain.model import ModelState
from moorage.engine.catalog import Catalog, Serving
from moorage.engine.engine import Engine
from moorage.engine.snapshot import BrokenModel, DeviceSnapshot, ModelSnapshot, ServerSnapshot
from moorage.scheduling.admission import is_ready
from moorage.scheduling.budget import LeaseKind
from moorage.scheduling.state import ModelRecord


def take_snapshot(engine: Engine, catalog: Catalog, *, started: bool) -> ServerSnapshot:
    """Freeze what views show. started: the eager models have had their turn."""
    state = engine.scheduler.state
    models = tuple(_model(engine, serving) for serving in catalog.all())
    serves = not models or any(model.ready for model in models)
    return ServerSnapshot(
        models=models,
        broken=tuple(BrokenModel(name, reason) for name, reason in sorted(catalog.broken.items())),
        devices=tuple(
            DeviceSnapshot(name, budget.capacity_bytes, budget.by_kind())
            for name, budget in sorted(state.budgets.items())
        ),
        ready=started and serves and not state.draining,
        draining=state.draining,
    )


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
    )


def _leased(record: ModelRecord) -> dict[str, int]:
    leased = {}
    if record.weights is not None:
        leased[LeaseKind.WEIGHTS.value] = record.weights.size_bytes
    if record.run is not None:
        leased[LeaseKind.WORKSPACE.value] = record.run.workspace.size_bytes
    return leased
