"""What each model waits for, and its place among those who wait on its device."""

from moorage.domain.model import ModelState
from moorage.scheduling.patience import Patience
from moorage.scheduling.records import ModelRecord
from moorage.scheduling.state import DeviceRecord, State
from moorage.scheduling.timers import CompanyDue
from moorage.scheduling.turns import Turns

_LEAVING = {ModelState.OFFLOADING, ModelState.UNLOADING}


class Lines:
    """Keeps a device's lines true. A model of which something changed is looked at once, after the event."""

    def __init__(self, state: State, patience: Patience) -> None:
        self._state = state
        self._patience = patience
        self._turns = Turns(state)

    def refresh(self, model: ModelRecord, now: float) -> None:
        """Put a placed model where it waits now."""
        if model.device is None:
            return
        device = self._state.device_of(model)
        ready, arriving = self._ready_place(model, now), self._arriving_place(model)
        if (model.spec.max_batch_size > 1 or device.returning) and self._gathers(
            model, device, now, could_run=ready is not None
        ):
            ready = None
        changed = device.ready.set(model.key, ready)
        if arriving is not None or device.arriving:
            changed = device.arriving.set(model.key, arriving) or changed
        if ready is None and arriving is None and device.short:
            changed = device.short.pop(model.key, None) is not None or changed
        if changed:
            self._state.stir(device.name)
            if ready is not None:
                # They have a place before or behind it now, rather than to come after it whatever their place is.
                self._state.touched.update(device.gathering)
        if model.first_run is not None and ready is None and model.state is ModelState.RESIDENT:
            # Whoever it was leased for has gone.
            self._state.end_first_run(model)
            self._state.stir(device.name)

    def leave(self, model: ModelRecord) -> None:
        """The model is about to be nowhere."""
        device = self._state.device_of(model)
        device.ready.drop(model.key)
        device.arriving.drop(model.key)
        device.gathering.pop(model.key, None)
        device.returning.pop(model.key, None)

    def _gathers(self, model: ModelRecord, device: DeviceRecord, now: float, *, could_run: bool) -> bool:
        """Whether the model waits for company before it asks for its turn."""
        until_s = self._patience.until_s(model, device, now) if could_run else None
        if until_s is None and could_run and device.returning:
            until_s = self._turns.leaves_until_s(model, device, now)
        if until_s is None:
            if model.company_until_s is not None:
                model.company_until_s = None
                device.gathering.pop(model.key, None)
            return False
        if model.company_until_s != until_s:
            model.company_until_s = until_s
            self._state.timers.add(until_s, CompanyDue(model.key))
        device.gathering[model.key] = None
        return True

    def _ready_place(self, model: ModelRecord, now: float) -> float | None:
        """The best place of its work, if it could have a run or a step now."""
        if model.state is not ModelState.RESIDENT or (model.runs and not _may_run_beside(model, now)):
            return None
        head = model.queue.head
        if (head is None and not model.active and not model.behind) or not self._state.is_up(model):
            return None
        if model.behind and self._waits_for_others(model):
            return None
        going = [entry.priority for entry in model.active.values() if entry.leaving is None and not entry.paused]
        if not going:
            return self._state.waiting_place(model, head) if head is not None else None
        # It had its turn when it last took a step: others of the same priority come first now. Who waits to join
        # joins then, and has a place of its own only by higher priority.
        place = self._state.place(model, max(model.served_s, model.due_s), min(going))
        if head is not None and head.priority < min(going):
            place = min(place, self._state.waiting_place(model, head))
        return place

    def _waits_for_others(self, model: ModelRecord) -> bool:
        """Whether some of those who were to make way for its next run have not left yet."""
        models = self._state.models
        model.behind = {key for key in model.behind if key in models and models[key].state in _LEAVING}
        if not model.behind:
            self._state.awaiting.pop(model.key, None)
        return bool(model.behind)

    def _arriving_place(self, model: ModelRecord) -> float | None:
        """The best place of whoever wants the model in memory, if it is not and could be brought there."""
        if model.state is ModelState.RESIDENT:
            return None
        absent = model.state is ModelState.LOADING and model.weights is None
        offloaded = model.state is ModelState.OFFLOADED and self._state.is_up(model)
        if not (absent or offloaded):
            return None
        places = []
        head = model.queue.head
        if head is not None:
            places.append(self._state.waiting_place(model, head))
        if model.wanted or (absent and head is None):
            places.append(self._state.place(model, model.asked_s, model.share.priority))
        return min(places, default=None)


def _may_run_beside(model: ModelRecord, now: float) -> bool:
    """Whether a further run may begin beside those under way.

    Not beside requests that are tried again, nor of these: if one of them kills workers, it takes nobody along, and one
    that found no memory finds all there is. Nor for a while where that was enough.
    """
    head = model.queue.head
    if not model.has_free_instance or head is None or head.stands_alone or not model.kept_apart.allows(now):
        return False
    return not any(entry.stands_alone for run in model.runs for entry in run.entries)
