"""Stepped requests whose callers don't take what was answered: they take no step, and hold up nobody.

Such a request keeps its state where it is until somebody needs the memory, whoever that is. From then on it waits
beside its model's queue: it is nobody's turn. A pause does not outlast a step that failed or a worker that died: what
begins again is not sent twice, and pauses anew with the next answer that is too much.
"""

from moorage.scheduling.entries import Entry
from moorage.scheduling.records import ModelRecord
from moorage.scheduling.state import State


class Pauses:
    """Decides about pauses that callers make."""

    def __init__(self, state: State) -> None:
        self._state = state

    def pause(self, request_id: int) -> None:
        """No further step of a request for now. One that is not stepped is computed all the same."""
        entry = self._state.entries.get(request_id)
        if entry is None or entry.paused:
            return
        model = self._state.models[entry.request.model]
        if entry in model.queue:
            model.queue.remove(entry)
            park(model, entry)
        elif model.active.get(request_id) is not entry:
            return
        entry.paused = True
        self._changed(model)

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


def park(model: ModelRecord, entry: Entry) -> None:
    """Have a paused request wait beside the queue."""
    model.parked[entry.request.request_id] = entry
