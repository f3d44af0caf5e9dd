"""Whether a request may join its model's queue."""

from moorage.domain.errors import DeadlineExceeded, ModelNotReady, ModelTooLarge, MoorageError, ServerDraining
from moorage.domain.model import Loading, ModelState
from moorage.domain.request import InferenceRequest
from moorage.scheduling.placement import expected_state_bytes, expected_weights_bytes, largest_device
from moorage.scheduling.records import ModelRecord
from moorage.scheduling.recovery import UNWELL_AFTER, restart_delay_s
from moorage.scheduling.state import DeviceRecord, State


def not_ready(state: State, model: ModelRecord) -> ModelNotReady | None:
    """Why a model takes no requests now, if it takes none. One that its first request brings in takes them."""
    if model.closing or (model.state is ModelState.UNLOADING and not model.evicted):
        return ModelNotReady(model.key.name, "unloading")
    worker = state.worker_of(model)
    if worker is not None and worker.crashes >= UNWELL_AFTER and worker.restart_at_s is not None:
        delay_s = restart_delay_s(worker.crashes)
        return ModelNotReady(model.key.name, f"its worker ended {worker.crashes} times in a row", retry_after_s=delay_s)
    if model.state is ModelState.FAILED:
        return ModelNotReady(model.key.name, model.reason or "failed to load", retry_after_s=None)
    if model.state is ModelState.UNLOADED and not comes_when_called(model):
        return ModelNotReady(model.key.name, model.reason or "not loaded")
    return None


def comes_when_called(model: ModelRecord) -> bool:
    """Whether a request brings the model in: it was in memory before, or was made to be loaded so."""
    return model.in_service or model.spec.loading is Loading.ON_DEMAND


def refusal(
    state: State, model: ModelRecord, request: InferenceRequest, run_rows: int, now: float
) -> MoorageError | None:
    """Why this request can't be taken, if it can't, whatever waits. What gets by counts for the model's rate.

    run_rows: how many of its rows are to be computed at once.
    """
    if state.draining:
        return ServerDraining()
    return (
        not_ready(state, model)
        or _expired(request, now)
        or never_fits(state, model, run_rows)
        or (model.rate.refusal(request.rows, now) if model.rate is not None else None)
    )


def _expired(request: InferenceRequest, now: float) -> DeadlineExceeded | None:
    if request.deadline_s > now:
        return None
    return DeadlineExceeded(now - request.arrived_s, "before it was queued")


def never_fits(state: State, model: ModelRecord, rows: int, kept_bytes: int | None = None) -> ModelTooLarge | None:
    """Whether a run of that many rows exceeds what the device could offer with this model alone on it, or the
    model's own limit. By what is declared: a run that was measured has found its memory.

    kept_bytes: the state of a request that has given way; None for one that begins.
    """
    state_bytes = expected_state_bytes(model) if kept_bytes is None else kept_bytes
    run_bytes = model.spec.memory.workspace_bytes(rows) + state_bytes
    if run_bytes == 0:
        return None
    what = f"a run of {rows} rows of model '{model.key.name}'"
    limit_bytes = model.semaphore.limit_bytes
    if limit_bytes is not None and run_bytes > limit_bytes:
        return ModelTooLarge(what, device="its memory.limit", needed_bytes=run_bytes, capacity_bytes=limit_bytes)
    device = _device(state, model)
    if device is None:
        return None
    weights_bytes = model.weights.size_bytes if model.weights else expected_weights_bytes(model)
    needed_bytes = run_bytes + weights_bytes + device.limits.context_bytes
    if needed_bytes <= device.budget.configured_bytes:
        return None
    return device.budget.too_large(what, needed_bytes)


def fitting_rows(state: State, model: ModelRecord, rows: int) -> int:
    """How many of a request's rows one run may have: all, unless its model splits requests; at least 1."""
    if rows == 1 or not model.spec.batching.split_requests:
        return rows
    rows = min(rows, model.spec.max_batch_size)
    while rows > 1 and never_fits(state, model, rows) is not None:
        rows //= 2
    return rows


def _device(state: State, model: ModelRecord) -> DeviceRecord | None:
    return state.devices[model.device] if model.device else largest_device(model.spec, state.devices)


def is_ready(state: State, model: ModelRecord) -> bool:
    """What readiness probes are told. One that its first request brings in is ready; one whose worker died is not."""
    if not_ready(state, model) is not None:
        return False
    if model.state in {ModelState.LOADING, ModelState.UNLOADED}:
        worker = state.worker_of(model)
        return comes_when_called(model) and (worker is None or worker.crashes == 0)
    return True
