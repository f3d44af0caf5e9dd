"""Models leaving device memory: unloaded, offloaded, put out to make room; and loads that end before they are there."""

from moorage.domain.errors import LoadFailed, MemoryExhausted, ModelNotReady, MoorageError
from moorage.domain.model import ModelKey, ModelState
from moorage.scheduling.actions import LoadSettled, Offload, Unload
from moorage.scheduling.budget import LeaseKind
from moorage.scheduling.lines import Lines
from moorage.scheduling.records import ModelRecord, WorkerState
from moorage.scheduling.requests import Requests
from moorage.scheduling.state import State
from moorage.scheduling.timers import MoveDue
from moorage.scheduling.workers import Workers

ON_THE_MOVE = {ModelState.UNLOADING, ModelState.OFFLOADING, ModelState.RESTORING}


class Departures:
    """Decides about ways out."""

    def __init__(self, state: State, requests: Requests, workers: Workers, lines: Lines) -> None:
        self._state = state
        self._requests = requests
        self._workers = workers
        self._lines = lines

    def send_away(self, model: ModelRecord, now: float) -> None:
        """Have the worker drop a model that is in no run. What it kept of suspended requests goes with it."""
        assert model.worker is not None
        self._state.move(model, ModelState.UNLOADING, "put out to make room" if model.evicted else "")
        self._leave_weights(model)
        # With that on its way, whoever waits may need no more than what others can give now.
        self._state.stir(self._state.device_of(model).name)
        self.set_deadline(model, now)
        if self._state.workers[model.worker].state is WorkerState.UP:
            self._state.actions.append(Unload(model.key, model.worker))

    def _forget_states(self, model: ModelRecord) -> None:
        """What a worker kept of requests went with the model. Those that were to be dropped are."""
        for entry in model.entries:
            if entry.host is not None:
                self._state.device_of(model).host.release(entry.host)
                entry.host = None
                entry.begin_again()
        model.active.clear()

    def evict(self, model: ModelRecord, now: float, *, altogether: bool = False) -> None:
        """Put an idle model out to make room: to the host where it can go there, else altogether.

        It stays in service: its next request brings it back.
        """
        device = self._state.device_of(model)
        model.counts.evictions += model.state is ModelState.RESIDENT
        model.evicted = True
        if model.state is ModelState.RESIDENT and model.can_offload and not altogether:
            assert model.weights is not None
            model.host = device.host.acquire(str(model.key), LeaseKind.WEIGHTS, model.weights.size_bytes)
        if model.state is ModelState.RESIDENT and model.host is not None:
            assert model.worker is not None
            self._state.move(model, ModelState.OFFLOADING, "put out to make room")
            self._leave_weights(model)
            self.set_deadline(model, now)
            self._state.actions.append(Offload(model.key, model.worker))
        else:
            self._leave_context(model)
            self.send_away(model, now)

    def drop_copy(self, model: ModelRecord, now: float) -> None:
        """Have the host forget an offloaded model, so that another can be offloaded."""
        assert model.host is not None
        model.evicted = True
        self._state.device_of(model).host.leave(model.host)
        self._leave_context(model)
        self.send_away(model, now)

    def _leave_weights(self, model: ModelRecord) -> None:
        budget = self._state.device_of(model).budget
        for lease in (model.weights, model.first_run):
            if lease is not None:
                budget.leave(lease)

    def _leave_context(self, model: ModelRecord) -> None:
        """A dedicated worker goes with its model."""
        worker = self._state.worker_of(model)
        if worker is not None and worker.dedicated and worker.context is not None:
            self._state.device_of(model).budget.leave(worker.context)

    def offloaded(self, key: ModelKey, retained_bytes: int) -> None:
        """The weights are on the host: only now are their bytes free, but for what stayed."""
        model = self.moving(key, ModelState.OFFLOADING)
        if model is None:
            return
        assert model.weights is not None
        self._state.end_first_run(model)
        budget = self._state.device_of(model).budget
        budget.stay(model.weights)
        if 0 < retained_bytes < model.weights.size_bytes:
            budget.correct(model.weights, retained_bytes)
        elif retained_bytes == 0:
            self._state.release(model.weights)
            model.weights = None
        self._state.move(model, ModelState.OFFLOADED, "put out to make room")
        model.evicted = False
        self._state.stir(budget.device)

    def offload_failed(self, key: ModelKey, now: float) -> None:
        """The host did not take it after all: then it goes altogether."""
        model = self.moving(key, ModelState.OFFLOADING)
        if model is not None:
            model.can_offload = False
            self._leave_context(model)
            self.send_away(model, now)

    def moving(self, key: ModelKey, state: ModelState) -> ModelRecord | None:
        """The model whose move has just ended; None if that is no longer awaited."""
        model = self._state.models.get(key)
        if model is None or model.state is not state or not self._state.is_up(model):
            return None
        return model

    def set_deadline(self, model: ModelRecord, now: float) -> None:
        """Give a move its time."""
        model.move_deadline_s = now + self._state.limits.max_unload_s
        self._state.timers.add(model.move_deadline_s, MoveDue(model.key))

    def overdue(self, key: ModelKey, now: float) -> None:
        """A move in or out of the host, or a model's own clean-up, never ends: only the end of its process frees it."""
        model = self._state.models.get(key)
        if model is None or model.state not in ON_THE_MOVE or now < model.move_deadline_s:
            return
        worker = self._state.worker_of(model)
        if worker is not None:
            self._workers.kill(worker, f"{model.state} {key} took too long")

    def unloaded(self, key: ModelKey, retained_bytes: int) -> None:
        """The worker confirmed: only now are the bytes free, but for what something still holds."""
        model = self._state.models.get(key)
        if model is None or model.state is not ModelState.UNLOADING:
            return
        if retained_bytes > 0 and model.weights is not None:
            self._quarantine(model, retained_bytes)
        self.gone(model)

    def _quarantine(self, model: ModelRecord, retained_bytes: int) -> None:
        """What a model left behind stays charged until its process ends; and the model does not come back before."""
        assert model.weights is not None
        worker = self._state.workers[model.worker or ""]
        whole_bytes = model.weights.size_bytes
        budget = self._state.device_of(model).budget
        budget.stay(model.weights)
        budget.correct(model.weights, retained_bytes)
        budget.disown(model.weights)
        worker.retained[model.key] = model.weights
        model.weights = None
        reason = (
            f"unloading it left {retained_bytes} of {whole_bytes} bytes behind: quarantined until its worker restarts"
        )
        model.quarantined_in = worker.worker
        model.failure = LoadFailed(model.key.name, reason)

    def gone(self, model: ModelRecord) -> None:
        """A model that was on its way out is out. Unless that was asked for, its reason is kept."""
        evicted = model.evicted
        if model.failure is not None and not model.closing:
            self.out(model, ModelState.FAILED, model.failure.message)
            self.settle(model, model.failure)
            self._requests.fail_waiting(model, model.failure)
        else:
            self.out(model, ModelState.UNLOADED, "put out to make room" if evicted else "")
            if model.closing:
                error = ModelNotReady(model.key.name, "unloading")
                self.settle(model, error)
                self._requests.fail_waiting(model, error)

    def give_up(self, model: ModelRecord, error: MoorageError) -> None:
        """End a model that is loading, or lost while it closed, and all that wait for it, with an error.

        Want of memory is no fault of the model's: it may be tried again.
        """
        blameless = model.closing or isinstance(error, MemoryExhausted)
        self.out(model, ModelState.UNLOADED if blameless else ModelState.FAILED, error.message)
        self.settle(model, error)
        self._requests.fail_waiting(model, error)

    def settle(self, model: ModelRecord, error: MoorageError | None) -> None:
        """Tell whoever asked for the load how it ended, once."""
        if model.wanted:
            model.wanted = False
            self._state.actions.append(LoadSettled(model.key, error))

    def out(self, model: ModelRecord, state: ModelState, reason: str) -> None:
        """Nothing of the model is in memory any more."""
        self._state.building.pop(model.key, None)
        if model.device is not None:
            self.release_all(model)
            self._lines.leave(model)
            device = self._state.device_of(model)
            del device.models[model.key]
            if model.semaphore in device.budget.shares:
                device.budget.part(model.semaphore)
            # Even where no bytes came free: those who wait may have waited for this to be over.
            self._state.stir(device.name)
        self._workers.leave(model)
        model.device = None
        model.evicted = False
        self._state.move(model, state, reason)

    def release_all(self, model: ModelRecord) -> None:
        """Release what a model holds for itself, on the device and beside it."""
        if model.weights is not None:
            self._state.release(model.weights)
            model.weights = None
        self._state.end_first_run(model)
        self.release_host(model)
        self._forget_states(model)

    def release_host(self, model: ModelRecord) -> None:
        """The host's copy of the weights is gone."""
        if model.host is not None:
            self._state.device_of(model).host.release(model.host)
            model.host = None


def is_idle(model: ModelRecord) -> bool:
    """Whether nothing of it is computed, or kept between steps."""
    return not model.runs and not model.active
