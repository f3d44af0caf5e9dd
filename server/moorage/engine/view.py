"""Builds the snapshot from the live state."""

from collections.abc import Mapping

from moorage.domain.model import Loading, ModelState
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
    return ServerSnapshot(
        models=models,
        broken=tuple(BrokenModel(name, reason) for name, reason in sorted(catalog.broken.items())),
        devices=tuple(
            DeviceSnapshot(name, budget.capacity_bytes, budget.by_kind())
            for name, budget in sorted(state.budgets.items())
        ),
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
    )


def _leased(record: ModelRecord) -> dict[str, int]:
    leased = {}
    if record.weights is not None:
        leased[LeaseKind.WEIGHTS.value] = record.weights.size_bytes
    if record.run is not None:
        leased[LeaseKind.WORKSPACE.value] = record.run.workspace.size_bytes
    return leased
