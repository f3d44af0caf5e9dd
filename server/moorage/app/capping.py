"""Hard caps on CUDA processes: a worker can't take what the ledger gave to others, whatever its models do."""

from collections.abc import Sequence

from moorage.scheduling import actions, events
from moorage.scheduling.records import WorkerRecord, WorkerState
from moorage.scheduling.state import DeviceRecord, State
from moorage.workers.pool import WorkerPool

# What torch takes beside what is leased: segments of up to 20 MiB are cut up, and cuBLAS keeps a workspace per thread.
SLACK_BYTES_PER_MODEL = 64 * 1024 * 1024

# What only begins or answers requests: what others than the worker itself hold is as it was, or less.
_OF_REQUESTS = (actions.Execute, actions.Succeed, actions.SucceedStepped, actions.Fail)
_WITHOUT_ACTIONS = (events.HoldReleased, events.CapacityChanged)


class Caps:
    """Tells a worker its cap when that has changed, before it is told to do anything with the memory."""

    def __init__(self, state: State, pool: WorkerPool) -> None:
        self._state = state
        self._pool = pool
        self._told: dict[str, int] = {}
        self._has_cuda = any(name.startswith("cuda:") for name in state.devices)

    def decided(self, event: events.Event, decided: Sequence[actions.Action]) -> None:
        """Something happened, and this follows from it."""
        if self._has_cuda and (
            isinstance(event, _WITHOUT_ACTIONS) or any(not isinstance(action, _OF_REQUESTS) for action in decided)
        ):
            self._update()

    def _update(self) -> None:
        for worker in self._state.workers.values():
            if not worker.device.startswith("cuda:"):
                continue
            if worker.state is not WorkerState.UP:
                self._told.pop(worker.worker, None)
                continue
            size_bytes = cap_bytes(self._state, worker, self._state.devices[worker.device])
            if self._told.get(worker.worker) != size_bytes:
                self._told[worker.worker] = size_bytes
                self._pool.cap(worker.worker, size_bytes)


def cap_bytes(state: State, worker: WorkerRecord, device: DeviceRecord) -> int:
    """What the device offers, less what others than this worker and its models hold; its own context is not torch's.

    A little is added for what torch takes beside what is leased: the device's `reserve` is there for that.
    """
    context_bytes = worker.context.size_bytes if worker.context is not None else 0
    own_bytes = context_bytes + sum(lease.size_bytes for lease in worker.retained.values())
    own_bytes += sum(state.models[key].semaphore.held_bytes for key in worker.models)
    others_bytes = device.budget.leased_bytes - own_bytes
    slack_bytes = SLACK_BYTES_PER_MODEL * max(1, len(worker.models))
    return max(0, device.budget.capacity_bytes - others_bytes - context_bytes) + slack_bytes
