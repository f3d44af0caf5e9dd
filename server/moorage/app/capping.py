"""Hard caps on CUDA processes: a worker can't take what the ledger gave to others, whatever its models do; nor keep it
cached."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from moorage.scheduling import actions, events
from moorage.scheduling.records import WorkerRecord, WorkerState
from moorage.scheduling.state import DeviceRecord, State
from moorage.workers.pool import WorkerPool

# What torch takes beside what is leased: segments of up to 20 MiB are cut up, cuBLAS keeps a workspace per thread, and
# a worker that is not alone still keeps as much cached.
SLACK_BYTES_PER_MODEL = 64 * 1024 * 1024

# What only begins or answers requests: for a worker that is alone on its device nothing changes, as it is told what
# others than itself hold.
_OF_REQUESTS = (actions.Execute, actions.Succeed, actions.SucceedStepped, actions.Emit, actions.Fail)
_WITHOUT_ACTIONS = (events.HoldRequested, events.HoldReleased, events.CapacityChanged)


class Cap(NamedTuple):
    """What a worker is told. keeps_cached: what is free again of its device. keeps_pinned: of the host's memory."""

    size_bytes: int
    keeps_cached: bool
    keeps_pinned: bool


class Caps:
    """Tells a worker its cap when that has changed, before it is told to do anything with the memory.

    One that is no longer alone on its device gives back what it has cached, before others are told to take anything.
    """

    def __init__(self, state: State, pool: WorkerPool) -> None:
        self._state = state
        self._pool = pool
        self._told: dict[str, Cap] = {}
        self._has_cuda = any(name.startswith("cuda:") for name in state.devices)
        self._is_shared = False  # whether a device is, by several workers

    def decided(self, event: events.Event, decided: Sequence[actions.Action]) -> None:
        """Something happened, and this follows from it."""
        if self._has_cuda and (
            self._is_shared
            or isinstance(event, _WITHOUT_ACTIONS)
            or any(not isinstance(action, _OF_REQUESTS) for action in decided)
        ):
            self._update()

    def _update(self) -> None:
        workers = [worker for worker in self._state.workers.values() if worker.device.startswith("cuda:")]
        # Also one that is only on its way there, or on its way out, has a place.
        places = Counter(worker.device for worker in workers if worker.context is not None)
        held = {hold.device for hold in self._state.holds.values()}
        self._is_shared = any(count > 1 for count in places.values())
        for worker in workers:
            if worker.state is not WorkerState.UP:
                self._told.pop(worker.worker, None)
                continue
            is_alone = places[worker.device] <= 1
            size_bytes = cap_bytes(self._state, worker, self._state.devices[worker.device])
            self._tell(worker.worker, Cap(size_bytes, is_alone and worker.device not in held, is_alone))

    def _tell(self, name: str, cap: Cap) -> None:
        before = self._told.get(name)
        if cap == before:
            return
        self._told[name] = cap
        self._pool.cap(name, cap.size_bytes, keeps_cached=cap.keeps_cached, keeps_pinned=cap.keeps_pinned)
        if before is not None and (cap.keeps_cached < before.keeps_cached or cap.keeps_pinned < before.keeps_pinned):
            self._pool.give_back(name)


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
