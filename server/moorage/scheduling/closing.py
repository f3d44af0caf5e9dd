"""Models that go for good, and their understudies with them."""

from moorage.domain.errors import ModelNotReady
from moorage.domain.model import ModelKey, ModelState
from moorage.scheduling.actions import UnloadSettled
from moorage.scheduling.departures import Departures, is_idle
from moorage.scheduling.records import ModelRecord
from moorage.scheduling.requests import Requests
from moorage.scheduling.state import State


class Closing:
    """Decides about unloads that were asked for."""

    def __init__(self, state: State, requests: Requests, departures: Departures) -> None:
        self._state = state
        self._requests = requests
        self._departures = departures

    def unload(self, key: ModelKey) -> None:
        """Refuse new work, and go once what was accepted is done. A load that has not begun is called off."""
        model = self._state.models.get(key)
        if model is None:
            self._state.actions.append(UnloadSettled(key))
            return
        model.closing = True
        self._state.closing[key] = None
        self._state.touch(model)  # it waits for company no more
        worker = self._state.worker_of(model)
        if model.state is ModelState.LOADING and (worker is None or worker.loading != key):
            self._departures.give_up(model, ModelNotReady(key.name, "unloaded while it waited to load"))

    def close_if_idle(self, key: ModelKey, now: float) -> None:
        """Take a closing model out of memory when nothing of it runs or waits, and forget it when it is out."""
        model = self._state.models[key]
        if model.state in {ModelState.UNLOADED, ModelState.FAILED}:
            # Put out while its callers did not read: it does not come back for them.
            self._requests.fail_waiting(model, ModelNotReady(key.name, "unloading"))
            if model.understudies:
                self._close_understudies(model, now)
            else:
                self._forget(model, now)
        elif model.state in {ModelState.RESIDENT, ModelState.OFFLOADED} and not _has_work(model):
            self._departures.send_away(model, now)

    def _close_understudies(self, model: ModelRecord, now: float) -> None:
        """They go with their model, once they have computed what they accepted of it."""
        for key in tuple(model.understudies.values()):
            understudy = self._state.models[key]
            if not understudy.closing:
                understudy.closing = True
                self._state.closing[key] = None
                self._state.touch(understudy)
                self.close_if_idle(key, now)

    def _forget(self, model: ModelRecord, now: float) -> None:
        del self._state.models[model.key]
        del self._state.closing[model.key]
        self._state.awaiting.pop(model.key, None)
        if model.understudy_of is None:
            self._state.actions.append(UnloadSettled(model.key))
            return
        principal = self._state.models[model.understudy_of]
        del principal.understudies[model.spec.devices[0]]
        if not principal.understudies:
            self.close_if_idle(principal.key, now)


def _has_work(model: ModelRecord) -> bool:
    return bool(model.queue or model.parked) or not is_idle(model)
