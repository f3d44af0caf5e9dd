"""Models leaving memory, and loads that end without getting there."""

from moorage.domain.errors import MemoryExhausted, ModelNotReady, MoorageError
from moorage.domain.model import ModelKey, ModelState
from moorage.scheduling.actions import LoadSettled, Unload, UnloadSettled
from moorage.scheduling.requests import Requests
from moorage.scheduling.state import ModelRecord, State
from moorage.scheduling.timers import UnloadDue
from moorage.scheduling.workers import Workers


class Departures:
    """Decides about ways out."""

    def __init__(self, state: State, requests: Requests, workers: Workers) -> None:
        self._state = state
        self._requests = requests
        self._workers = workers

    def unload(self, key: ModelKey) -> None:
        """Refuse new work, and go once what was accepted is done. A load that has not begun is called off."""
        model = self._state.models.get(key)
        if model is None:
            self._state.actions.append(UnloadSettled(key))
            return
        model.closing = True
        self._state.closing[key] = None
        if key in self._state.pending_loads:
            self.give_up(model, ModelNotReady(key.name, "unloaded while it waited to load"))

    def close_if_idle(self, key: ModelKey, now: float) -> None:
        """Take a closing model out of memory when nothing of it runs or waits, and forget it when it is out."""
        model = self._state.models[key]
        if model.state in {ModelState.UNLOADED, ModelState.FAILED}:
            del self._state.models[key]
            del self._state.closing[key]
            self._state.actions.append(UnloadSettled(key))
        elif model.state is ModelState.RESIDENT and model.run is None and not model.queue:
            self.send_away(model, now)

    def send_away(self, model: ModelRecord, now: float) -> None:
        """Have the worker drop a model that is in no run."""
        assert model.worker is not None
        self._state.move(model, ModelState.UNLOADING)
        model.unload_deadline_s = now + self._state.limits.max_unload_s
        self._state.timers.add(model.unload_deadline_s, UnloadDue(model.key))
        self._state.actions.append(Unload(model.key, model.worker))

    def overdue(self, key: ModelKey, now: float) -> None:
        """A model's own clean-up never ends: only the end of its process frees the memory."""
        model = self._state.models.get(key)
        if model is None or model.state is not ModelState.UNLOADING or now < model.unload_deadline_s:
            return
        worker = self._state.workers.get(model.worker or "")
        if worker is not None:
            self._workers.kill(worker, f"unloading {key} took too long")

    def unloaded(self, key: ModelKey) -> None:
        """The worker confirmed: only now are the bytes free."""
        model = self._state.models.get(key)
        if model is not None and model.state is ModelState.UNLOADING:
            self.gone(model)

    def gone(self, model: ModelRecord) -> None:
        """A model that was on its way out is out. Unless that was asked for, its reason is kept."""
        if model.failure is None or model.closing:
            self._out(model, ModelState.UNLOADED, "")
        else:
            self._out(model, ModelState.FAILED, model.failure.message)

    def give_up(self, model: ModelRecord, error: MoorageError) -> None:
        """End a model that is loading, or lost while it closed, and all that wait for it, with an error.

        Want of memory is no fault of the model's: it may be tried again.
        """
        self._state.pending_loads.pop(model.key, None)
        blameless = model.closing or isinstance(error, MemoryExhausted)
        self._out(model, ModelState.UNLOADED if blameless else ModelState.FAILED, error.message)
        self.settle(model, error)
        self._requests.fail_waiting(model, error)

    def settle(self, model: ModelRecord, error: MoorageError | None) -> None:
        """Tell whoever asked for the load how it ended, once."""
        if model.wanted:
            model.wanted = False
            self._state.actions.append(LoadSettled(model.key, error))

    def _out(self, model: ModelRecord, state: ModelState, reason: str) -> None:
        """Nothing of the model is in memory any more."""
        if model.weights is not None:
            self._state.release(model.weights)
            model.weights = None
        self._workers.leave(model)
        self._state.move(model, state, reason)
        if model.device is not None:
            # Even where no bytes came free: those who wait may have waited for this to be over.
            self._state.stir(model.device)
            model.device = None
