"""Whether memory of a device comes free by itself, so that waiting for it makes sense."""

from moorage.domain.model import ModelState
from moorage.scheduling.state import State, WorkerState


def something_leaves(state: State, device: str) -> bool:
    """Whether a model or a worker is on its way out, and waits for no memory to get there."""
    return any(
        model.device == device and (model.state is ModelState.UNLOADING or (model.closing and not model.queue))
        for model in state.models.values()
    ) or any(worker.device == device and worker.state is WorkerState.STOPPING for worker in state.workers.values())


def something_moves(state: State, device: str) -> bool:
    """Whether a run will end, or a model or worker go: what a load may wait for.

    A closing model counts although its last requests may wait for memory too: each of them is answered in the end.
    """
    return something_leaves(state, device) or any(
        model.device == device and (model.closing or (model.run is not None and model.run.workspace.size_bytes > 0))
        for model in state.models.values()
    )
