"""Whose turn comes, and who leaves it to others for a moment, when models of one priority share a device."""

from itertools import islice

from moorage.domain.model import ModelKey
from moorage.scheduling.actions import Run
from moorage.scheduling.fairness import Returning, WaitingWeight, next_due_beside_s, next_due_s
from moorage.scheduling.records import ModelRecord
from moorage.scheduling.state import DeviceRecord, State

# With more who wait the share of any one is small, and so is what it loses while its callers come back.
_FEW = 8
# Of more who wait the weights are estimated: from so many of them, and for so many runs.
_SAMPLE, _GOOD_FOR = 32, 256
_NEVER = float("-inf")


class Turns:
    """Looks at what runs took, beside those who waited meanwhile."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._most_s = state.limits.ageing_s / 2

    def next_due_s(self, model: ModelRecord, device: DeviceRecord, run: Run, now: float) -> float:
        """When the next turn of a model is due that has just ended a run while others waited.

        Never so far off that it would count as of another priority.
        """
        first = run.entries[0]
        came_s = first.request.arrived_s
        never_gone = came_s <= model.served_s or came_s <= model.back_until_s
        weight = model.spec.weight
        of_all = weight + self._others_weight(model, device, first.priority)
        times = of_all / (device.limits.run_slots * weight)
        since_s = _NEVER if never_gone else came_s
        if model.spec.instances > 1:
            if len(device.ready) == 1 and model.key in device.ready:
                return now  # Nobody else wants the device.
            was_due_s = max(model.due_s, since_s)
            if model.served_s <= run.started_s:
                was_due_s = min(was_due_s, run.started_s)
            # Else another of its runs ended meanwhile, and what that one took is counted already.
            times = max(times, 1 / model.spec.instances)
            return next_due_beside_s(run.started_s, now, was_due_s, times, self._most_s)
        return next_due_s(run.started_s, now, model.due_s, since_s, times, self._most_s)

    def _others_weight(self, model: ModelRecord, device: DeviceRecord, priority: int) -> float:
        """Of those who wait for the device, or run there, at the same priority."""
        few = len(device.ready) <= _FEW
        weight = self._weight_of(device, priority) if few else self._estimated_weight(device, priority)
        if model.spec.instances > 1 and model.key in device.ready and _priority(model) == priority:
            weight -= model.spec.weight  # It waits itself, for a further run.
        if device.runs > 0:
            keys = {run.key for run in self._state.runs.values()}
            running = [
                device.models[key]
                for key in keys
                if key in device.models and key != model.key and key not in device.ready
            ]
            weight += sum(other.spec.weight for other in running if _priority(other) == priority)
        return weight

    def _weight_of(self, device: DeviceRecord, priority: int, most: int | None = None) -> float:
        models = self._state.models
        waiting = [models[key] for key in islice(device.ready.waiters(), most) if isinstance(key, ModelKey)]
        return sum(other.spec.weight for other in waiting if _priority(other) == priority)

    def _estimated_weight(self, device: DeviceRecord, priority: int) -> float:
        """Of all who wait: from a sample, and good for some runs."""
        estimate = device.waiting_weights.get(priority)
        if estimate is None:
            estimate = device.waiting_weights[priority] = WaitingWeight()
        if estimate.uses == 0:
            size = min(_SAMPLE, len(device.ready))
            estimate.weight = self._weight_of(device, priority, size) * len(device.ready) / size
            estimate.uses = _GOOD_FOR
        estimate.uses -= 1
        return estimate.weight

    def expect_back(self, model: ModelRecord, run: Run, now: float) -> None:
        """Others who had more than their share of the device leave it to this model's callers, who come right back."""
        device = self._state.device_of(model)
        until_s = model.company.until_s
        if not 0 < len(device.ready) <= _FEW or until_s <= now or model.company.expected() == 0:
            return
        model.back_until_s = until_s
        device.returning[model.key] = Returning(run.entries[0].priority, until_s)
        for waiter in device.ready.waiters():
            if isinstance(waiter, ModelKey):
                self._state.touched[waiter] = None

    def leaves_until_s(self, model: ModelRecord, device: DeviceRecord, now: float) -> float | None:
        """Until when a model that has had more than its share of the device leaves it to one whose callers are about to
        come back; None where it may go on at once.

        Else a model with few callers would never have anything waiting when its turn comes, and lose its share. To
        keep the device idle for that moment is anticipatory scheduling (Iyer and Druschel, SOSP 2001).
        """
        latest_s = now
        for key, (priority, until_s) in tuple(device.returning.items()):
            other = self._state.models.get(key)
            if other is None or other.runs or other.queue or until_s <= now:
                del device.returning[key]
            elif priority == _priority(model) and other.due_s < model.due_s:
                latest_s = max(latest_s, until_s)
        if model.closing or self._state.draining or device.short or model.first_run is not None:
            return None
        until_s = min(latest_s, model.due_s)
        return until_s if until_s > now else None


def _priority(model: ModelRecord) -> int:
    """Of its best work."""
    if model.queue:
        return model.queue.best_priority or model.share.priority
    running = [entry for run in model.runs for entry in run.entries] or model.active.values()
    return min((entry.priority for entry in running), default=model.share.priority)
