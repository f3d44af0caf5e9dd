"""Whether a request may join its model's queue."""

from moorage.domain.errors import DeadlineExceeded, ModelNotReady, ModelTooLarge, MoorageError, ServerDraining
from moorage.domain.model import Loading, ModelState
from moorage.domain.request import InferenceRequest
from moorage.scheduling.placement import choose_device, expected_weights_bytes
from moorage.scheduling.recovery import UNWELL_AFTER, restart_delay_s
from moorage.scheduling.state import ModelRecord, State


def not_ready(state: State, model: ModelRecord) -> ModelNotReady | None:
    """Why a model takes no requests now, if it takes none. A cold model that loads on demand takes them."""
    if model.closing or model.state is ModelState.UNLOADING:
        return ModelNotReady(model.key.name, "unloading")
    worker = state.workers.get(model.worker or "")
    if worker is not None and worker.crashes >= UNWELL_AFTER and worker.restart_at_s is not None:
        delay_s = restart_delay_s(worker.crashes)
        return ModelNotReady(model.key.name, f"its worker ended {worker.crashes} times in a row", retry_after_s=delay_s)
    if model.state is ModelState.FAILED:
        return ModelNotReady(model.key.name, model.reason or "failed to load", retry_after_s=None)
    if model.state is ModelState.UNLOADED and model.spec.loading is not Loading.ON_DEMAND:
        return ModelNotReady(model.key.name, model.reason or "not loaded")
    return None


def refusal(state: State, model: ModelRecord, request: InferenceRequest, now: float) -> MoorageError | None:
    """Why this request can't be taken, if it can't."""
    if state.draining:
        return ServerDraining()
    return (
        not_ready(state, model)
        or _expired(request, now)
        or never_fits(state, model, request.rows)
        or model.queue.refusal(request)
    )


def _expired(request: InferenceRequest, now: float) -> DeadlineExceeded | None:
    if request.deadline_s > now:
        return None
    return DeadlineExceeded(now - request.arrived_s, "before it was queued")


def never_fits(state: State, model: ModelRecord, rows: int) -> ModelTooLarge | None:
    """Whether a run of that many rows exceeds what the device could offer with this model alone on it."""
    workspace_bytes = model.spec.memory.workspace_bytes(rows)
    if workspace_bytes == 0:
        return None
    budget = (
        state.budgets[model.device] if model.device else choose_device(model.spec, state.budgets, state.context_bytes)
    )
    if budget is None:
        return None
    weights_bytes = model.weights.size_bytes if model.weights else expected_weights_bytes(model.spec)
    needed_bytes = workspace_bytes + weights_bytes + state.context_bytes[budget.device]
    if needed_bytes <= budget.capacity_bytes:
        return None
    return budget.too_large(f"a run of {rows} rows of model '{model.key.name}'", needed_bytes)


def is_ready(state: State, model: ModelRecord) -> bool:
    """What readiness probes are told. A cold model that loads on demand is ready; one whose worker died is not."""
    if not_ready(state, model) is not None:
        return False
    if model.state is ModelState.RESIDENT:
        return True
    worker = state.workers.get(model.worker or "")
    return model.spec.loading is Loading.ON_DEMAND and (worker is None or worker.crashes == 0)
