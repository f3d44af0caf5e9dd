"""Stepped requests whose callers don't take what was answered: they take no step, and hold up nobody.

Such a request keeps its state where it is until somebody needs the memory, whoever that is. From then on it waits
beside its model's queue: it is nobody's turn. A pause does not outlast a step that failed or a worker that died: what
begins again is not sent twice, and pauses anew with the next answer that is too much. Where its model or the server is
to go, it is not waited for longer than MOST_S.
"""

from collections.abc import Iterable

from moorage.domain.errors import ModelNotReady, MoorageError, ServerDraining
from moorage.scheduling.entries import Entry
from moorage.scheduling.records import ModelRecord
from moorage.scheduling.requests import Requests
from moorage.scheduling.state import State
from moorage.scheduling.timers import PauseDue

# So long is a caller waited for that does not read while its model, or the server, is to go.
MOST_S = 5.0


class Pauses:
    """Decides about pauses that callers make."""

    def __init__(self, state: State, requests: Requests) -> None:
        self._state = state
        self._requests = requests

    def pause(self, request_id: int, now: float) -> None:
        """No further step of a request for now. One that is not stepped is computed all the same."""
        entry = self._state.entries.get(request_id)
        if entry is None or entry.paused:
            return
        model = self._state.models[entry.request.model]
        if entry in model.queue:
            model.queue.remove(entry)
            model.park(entry)
        elif model.active.get(request_id) is not entry:
            return
        entry.paused = True
        entry.paused_s = now
        self._changed(model)
        if model.closing or self._state.draining:
            self._wait_for([entry], now)

    def resume(self, request_id: int) -> None:
        """It may go on, or waits for its turn again."""
        entry = self._state.entries.get(request_id)
        if entry is None or not entry.paused:
            return
        entry.paused = False
        model = self._state.models[entry.request.model]
        if model.parked.pop(request_id, None) is not None:
            model.queue.put_back([entry])
        self._changed(model)

    def _changed(self, model: ModelRecord) -> None:
        self._state.touch(model)
        if model.device is not None:
            self._state.stir(model.device)

    def hurry(self, models: Iterable[ModelRecord], now: float) -> None:
        """These models are to go: those that are paused have not for ever."""
        for model in models:
            paused = [entry for entry in (*model.active.values(), *model.parked.values()) if entry.paused]
            self._wait_for(paused, now)

    def _wait_for(self, paused: Iterable[Entry], now: float) -> None:
        for entry in paused:
            self._state.timers.add(now + MOST_S, PauseDue(entry.request.request_id))

    def overdue(self, request_id: int, now: float) -> None:
        """A request may have been paused for too long, if it is still paused and there."""
        entry = self._state.entries.get(request_id)
        if entry is None or not entry.paused or now < entry.paused_s + MOST_S:
            return
        model = self._state.models[entry.request.model]
        error: MoorageError = ServerDraining()
        if not self._state.draining:
            if not model.closing:
                return
            error = ModelNotReady(model.key.name, "unloading")
        if request_id in model.parked:
            self._requests.refuse(model, entry, error)
        else:
            self._requests.give_up(model, entry, error)
