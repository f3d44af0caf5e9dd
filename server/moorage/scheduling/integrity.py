"""Whether the state agrees with itself: run after every step in tests, and when idle in service."""

from collections import Counter

from moorage.domain.model import ModelState
from moorage.scheduling.state import ModelRecord, State, WorkerState

IN_MEMORY = {ModelState.LOADING, ModelState.RESIDENT, ModelState.UNLOADING}


def check(state: State) -> None:
    """Recompute everything that is kept twice. Raises AssertionError where it has drifted."""
    for budget in state.budgets.values():
        budget.check_integrity()
    for model in state.models.values():
        model.queue.check_integrity()
        _check_model(state, model)
    _check_workers(state)
    _check_leases(state)
    _check_requests(state)


def _check_leases(state: State) -> None:
    """Every lease has one live owner."""
    owned = Counter(
        [model.weights for model in state.models.values() if model.weights]
        + [worker.context for worker in state.workers.values() if worker.context]
        + [run.workspace for run in state.runs.values()]
    )
    held = Counter(lease for budget in state.budgets.values() for lease in budget.leases)
    assert owned == held, f"{owned} owned, {held} held"


def _check_model(state: State, model: ModelRecord) -> None:
    key = model.key
    in_memory = model.state in IN_MEMORY
    assert in_memory == (model.device is not None), f"{key}: {model.state} on {model.device}"
    assert in_memory or (model.weights is None and model.worker is None), f"{key}: {model.state} holds something"
    assert model.state in {ModelState.LOADING, ModelState.RESIDENT} or not model.queue, (
        f"{key}: nobody serves its queue"
    )
    assert model.run is None or model.state is ModelState.RESIDENT, f"{key}: runs while {model.state}"
    assert model.run is None or state.runs[model.run.run_id] is model.run
    assert model.closing == (key in state.closing)
    assert key not in state.pending_loads or model.state is ModelState.LOADING
    for device, short in state.short_of_memory.items():
        assert key not in short or (device == model.device and model.queue), f"{key}: waits for no reason"


def _check_workers(state: State) -> None:
    for worker in state.workers.values():
        assert worker.context is not None or worker.state is WorkerState.DOWN, f"{worker.worker}: {worker.state}"
        assert worker.loading is None or state.models[worker.loading].state is ModelState.LOADING


def _check_requests(state: State) -> None:
    """Every accepted request waits in one queue or is in one run."""
    queued = [entry for model in state.models.values() for entry in model.queue]
    running = [entry for run in state.runs.values() for entry in run.entries]
    places = Counter(entry.request.request_id for entry in queued + running)
    assert all(count == 1 for count in places.values()), f"in two places: {places}"
    assert all(entry.request.request_id in state.entries for entry in queued)
    assert set(state.entries) <= set(places), f"lost: {set(state.entries) - set(places)}"
