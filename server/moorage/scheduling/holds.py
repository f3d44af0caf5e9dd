"""Bytes for processes outside: they wait in a device's line like everybody else, and keep them as long as they like."""

from moorage.domain.errors import DeadlineExceeded, InvalidRequest, MoorageError
from moorage.scheduling.actions import HoldSettled
from moorage.scheduling.budget import LeaseKind
from moorage.scheduling.claims import Claim
from moorage.scheduling.events import HoldRequested
from moorage.scheduling.policy import Waiting
from moorage.scheduling.state import DeviceRecord, HoldKey, HoldRecord, State
from moorage.scheduling.timers import HoldDue


class Holds:
    """Decides about holds."""

    def __init__(self, state: State) -> None:
        self._state = state

    def requested(self, event: HoldRequested, now: float) -> None:
        """Put a hold in line, or refuse what can never be."""
        error = self._refusal(event)
        if error is not None:
            self._state.actions.append(HoldSettled(event.hold_id, error))
            return
        waiting = Waiting(now, event.priority, served_s=now)
        place = self._state.policy.place(waiting, self._state.limits.ageing_s)
        hold = HoldRecord(HoldKey(event.hold_id), event.device, event.size_bytes, event.priority, place, now)
        self._state.holds[hold.key] = hold
        self._state.devices[event.device].arriving.put(hold.key, place)
        self._state.timers.add(event.deadline_s, HoldDue(event.hold_id))
        self._state.stir(event.device)

    def _refusal(self, event: HoldRequested) -> MoorageError | None:
        device = self._state.devices.get(event.device)
        if device is None:
            return InvalidRequest("device", expected=f"one of {', '.join(self._state.devices)}", got=event.device)
        if event.size_bytes > device.budget.configured_bytes:
            return device.budget.too_large("a hold", event.size_bytes)
        return None

    def claim(self, hold: HoldRecord) -> Claim:
        return Claim(hold.key, hold.place, hold.priority, hold.size_bytes)

    def take(self, hold: HoldRecord, device: DeviceRecord, room_bytes: float) -> bool:
        """Give a hold its bytes, if they fit the room."""
        if hold.size_bytes > room_bytes:
            return False
        hold.lease = device.budget.acquire(str(hold.key), LeaseKind.HELD, hold.size_bytes)
        assert hold.lease is not None
        self._state.actions.append(HoldSettled(hold.key.hold_id, None))
        return True

    def give_up(self, hold: HoldRecord, error: MoorageError) -> None:
        """It can't be had, or not in time."""
        del self._state.holds[hold.key]
        self._state.devices[hold.device].arriving.drop(hold.key)
        self._state.actions.append(HoldSettled(hold.key.hold_id, error))
        self._state.stir(hold.device)

    def overdue(self, hold_id: int, now: float) -> None:
        """A hold has waited as long as it may."""
        hold = self._state.holds.get(HoldKey(hold_id))
        if hold is not None and hold.lease is None:
            self.give_up(hold, DeadlineExceeded(now - hold.asked_s, "while the hold waited for memory"))

    def released(self, hold_id: int) -> None:
        """The process outside has gone, or needs the bytes no longer."""
        hold = self._state.holds.pop(HoldKey(hold_id), None)
        if hold is None:
            return
        self._state.devices[hold.device].arriving.drop(hold.key)
        if hold.lease is not None:
            self._state.release(hold.lease)
        self._state.stir(hold.device)
