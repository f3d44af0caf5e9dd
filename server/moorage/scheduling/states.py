"""States of stepped requests on their way out: they give way to others, or are given up, between two steps."""

from moorage.domain.model import ModelKey, ModelState, Preemption
from moorage.scheduling.actions import Drop, Suspend
from moorage.scheduling.budget import LeaseKind
from moorage.scheduling.entries import Entry, Leaving
from moorage.scheduling.records import ModelRecord, WorkerState
from moorage.scheduling.state import State
from moorage.scheduling.timers import StatesDue
from moorage.scheduling.workers import Workers

# What a state's way to the host and back is taken to cost, against steps that would have to be done again.
HOST_BYTES_PER_S = 2e9


class States:
    """Decides about what stepped requests keep between steps."""

    def __init__(self, state: State, workers: Workers) -> None:
        self._state = state
        self._workers = workers

    def may_preempt(self, model: ModelRecord, entry: Entry) -> bool:
        """Whether a running request is not to be left alone, by now or altogether."""
        policy = model.spec.preemption
        return (
            self._state.policy.preempts
            and policy.by is not Preemption.NEVER
            and (entry.paused or entry.preemptions < policy.max_preemptions)
        )

    def way_back_s(self, model: ModelRecord, entry: Entry) -> float:
        """Seconds that it would cost to have a running request where it is now: by the host, or by its steps again."""
        size_bytes = entry.state.size_bytes if entry.state is not None else 0
        return min(_host_s(size_bytes), entry.steps * model.measured.step_s)

    def give_way(self, model: ModelRecord, entry: Entry, now: float) -> None:
        """Have a running request leave at the next step: to the host, or, where that costs less, to begin again."""
        assert entry.state is not None
        device = self._state.device_of(model)
        size_bytes = entry.state.size_bytes
        again_s = entry.steps * model.measured.step_s
        if entry.host is not None and not device.host.resize(entry.host, size_bytes):
            self.release_host(model, entry)
        elif entry.host is None and again_s > _host_s(size_bytes):
            entry.host = device.host.acquire(str(model.key), LeaseKind.STATE, size_bytes)
        entry.leaving = Leaving.SUSPEND if entry.host is not None else Leaving.DROP
        entry.gave_way = True
        if not entry.paused:
            entry.preemptions += 1
            model.counts.preemptions += 1
        device.budget.leave(entry.state)
        self.flush(model, now)

    def flush(self, model: ModelRecord, now: float) -> None:
        """Tell the worker which states are to go, unless it computes with them just now."""
        if model.runs or model.worker is None or not self._state.is_up(model):
            return
        if model.state is ModelState.UNLOADING:
            return  # They go with the model.
        untold = [entry for entry in model.active.values() if entry.leaving is not None and not entry.told]
        for leaving, action in ((Leaving.SUSPEND, Suspend), (Leaving.DROP, Drop)):
            ids = tuple(entry.request.request_id for entry in untold if entry.leaving is leaving)
            if ids:
                self._state.actions.append(action(model.key, model.worker, ids))
        for entry in untold:
            entry.told = True
        if untold:
            model.states_deadline_s = now + self._state.limits.max_unload_s
            self._state.timers.add(model.states_deadline_s, StatesDue(model.key))

    def overdue(self, key: ModelKey, now: float) -> None:
        """States that were to go did not, in all the time that they had."""
        model = self._state.models.get(key)
        worker = self._state.worker_of(model) if model else None
        if model is None or worker is None or now < model.states_deadline_s:
            return
        if any(entry.told for entry in model.active.values()):
            self._workers.kill(worker, f"suspending requests of {key} took too long")

    def suspended(self, key: ModelKey, request_ids: tuple[int, ...]) -> None:
        """States are on the host: their bytes on the device are free, and their requests wait again."""
        model = self._awaited(key)
        if model is None:
            return
        back: list[Entry] = []
        for entry in self._told(model, request_ids):
            if entry.host is not None and entry.state is not None:
                self._state.device_of(model).host.correct(entry.host, entry.state.size_bytes)
            self._release_state(entry)
            entry.told = False
            if self._state.is_open(entry):
                entry.leaving = None
                back.append(model.active.pop(entry.request.request_id))
            else:
                entry.leaving = Leaving.DROP
        self._wait_again(model, back)
        self._state.touch(model)

    def dropped(self, key: ModelKey, request_ids: tuple[int, ...]) -> None:
        """States are gone. Requests that still wait for an answer begin again."""
        model = self._awaited(key)
        if model is None:
            return
        back: list[Entry] = []
        for entry in self._told(model, request_ids):
            del model.active[entry.request.request_id]
            is_paused = entry.paused
            self.forget(model, entry)
            if self._state.is_open(entry):
                entry.paused = is_paused
                back.append(entry)
        self._wait_again(model, back)
        self._state.touch(model)
        # Even where no bytes came free: one that runs alone waited for the others to be gone.
        self._state.stir(self._state.device_of(model).name)

    def _wait_again(self, model: ModelRecord, entries: list[Entry]) -> None:
        """Requests that gave way wait: in their queue, or beside it where they are paused."""
        for entry in entries:
            if entry.paused:
                model.park(entry)
        model.queue.put_back([entry for entry in entries if not entry.paused])

    def _awaited(self, key: ModelKey) -> ModelRecord | None:
        model = self._state.models.get(key)
        worker = self._state.worker_of(model) if model else None
        return model if worker is not None and worker.state is not WorkerState.DOWN else None

    def _told(self, model: ModelRecord, request_ids: tuple[int, ...]) -> list[Entry]:
        known = [model.active.get(request_id) for request_id in request_ids]
        return [entry for entry in known if entry is not None and entry.told]

    def forget(self, model: ModelRecord, entry: Entry) -> None:
        """A worker has nothing of a request any more: if it goes on, then from the beginning."""
        self._release_state(entry)
        self.release_host(model, entry)
        entry.leaving = None
        entry.told = entry.paused = False
        entry.begin_again()

    def _release_state(self, entry: Entry) -> None:
        if entry.state is not None:
            self._state.release(entry.state)
            entry.state = None

    def release_host(self, model: ModelRecord, entry: Entry) -> None:
        """The host keeps nothing of a request any more."""
        if entry.host is not None:
            self._state.device_of(model).host.release(entry.host)
            entry.host = None


def staying(model: ModelRecord) -> list[Entry]:
    """Requests whose states are to stay on the device, those that are paused among them."""
    return [entry for entry in model.active.values() if entry.leaving is None]


def going(model: ModelRecord) -> list[Entry]:
    """Running requests that are to stay so, in the order of their places."""
    return sorted((entry for entry in staying(model) if not entry.paused), key=lambda entry: entry.place)


def next_step_bytes(model: ModelRecord, entry: Entry) -> int:
    """What a step of this running request alone takes beyond what it keeps."""
    growth_bytes = model.measured.state_growth_bytes
    state_bytes = entry.state.size_bytes if entry.state is not None else 0
    return model.workspaces.bytes_for(entry.request.rows, beside_bytes=state_bytes + growth_bytes) + growth_bytes


def _host_s(size_bytes: int) -> float:
    """Seconds that a state's way to the host and back is taken to cost."""
    return 2 * size_bytes / HOST_BYTES_PER_S
