"""Whose turn it is: the one place where memory and run slots are given out, in the order of the device's lines."""

from collections.abc import Hashable
from dataclasses import replace

from moorage.domain.model import ModelKey, ModelState
from moorage.scheduling.claims import Claim
from moorage.scheduling.holds import Holds
from moorage.scheduling.line import Line
from moorage.scheduling.loads import Loads
from moorage.scheduling.ready import Ready
from moorage.scheduling.records import ModelRecord
from moorage.scheduling.room import Room, Turn
from moorage.scheduling.state import DeviceRecord, HoldKey, HoldRecord, State

# So many who can't go are looked past in one turn, in search of somebody small enough to go in their stead.
LOOK_PAST_ARRIVING = 4
LOOK_PAST_READY = 16

_Taken = tuple[float, int, Hashable]


class Dispatch:
    """Serves who waits on a device: strictly in order of their places, until somebody can't have what they need.

    For that one room is made. Those behind may still go, as far as they take nothing that it will need.
    """

    def __init__(self, state: State, ready: Ready, loads: Loads, holds: Holds, room: Room) -> None:
        self._state = state
        self._ready = ready
        self._loads = loads
        self._holds = holds
        self._room = room

    def advance(self, name: str, now: float) -> None:
        """Give out what the device has."""
        device = self._state.devices[name]
        if device.budget.overdrawn_bytes:
            self._room.relieve(device, now)
        if device.short:
            self._look_at_short(device)
        if device.ready.first_place is not None or device.arriving.first_place is not None:
            self._take_turns(device, now)

    def _take_turns(self, device: DeviceRecord, now: float) -> None:
        turn = Turn()
        passed: list[tuple[Line[Hashable], _Taken]] = []
        while not turn.refused and (line := self._first_line(device, turn)) is not None:
            taken = line.take()
            if self._serve(device, taken, turn, now):
                if device.short:
                    self._served_one(device, taken, turn)
            else:
                passed.append((line, taken))
                if line is device.ready:
                    turn.passed_ready += 1
                else:
                    turn.passed_arriving += 1
        for line, taken in passed:
            line.put_back(taken)
        if turn.refused:
            self._state.stir(device.name)
        elif device.short and device.runs == 0 and passed:
            self._ready.end_standstill(device, now)

    def _look_at_short(self, device: DeviceRecord) -> None:
        """See what those who are short of memory need now. Nothing is kept for who does not wait any more."""
        for waiter in tuple(device.short):
            line = next((line for line in (device.ready, device.arriving) if waiter in line), None)
            if line is None:
                del device.short[waiter]
            elif isinstance(waiter, ModelKey):
                claim = self.claim_of(self._state.models[waiter], device, line.place_of(waiter))
                device.short[waiter] = claim

    def _served_one(self, device: DeviceRecord, taken: _Taken, turn: Turn) -> None:
        """Whoever was served needs nothing kept any more. Those who were passed over for that are looked at again, and
        so is the blocked one, where of what it was to have something was taken by higher priority, or where it found
        nobody to make way and somebody has begun who can."""
        if device.short.pop(taken[2], None) is not None or (turn.blocked and (turn.spare_bytes < 0 or turn.going_on)):
            self._state.stir(device.name)

    def _first_line(self, device: DeviceRecord, turn: Turn) -> Line[Hashable] | None:
        """The line whose first has the better place. Nobody is ready where every slot is taken.

        However many do not fit, all of those who run are looked at where somebody waits for them, and everybody whom
        memory is kept for.
        """
        looks_far = turn.passed_arriving < LOOK_PAST_ARRIVING or self._keeps_for_others(device, turn)
        arriving = device.arriving.first_place if looks_far else None
        has_slot = device.runs < device.limits.run_slots
        looks_on = has_slot and (turn.passed_ready < LOOK_PAST_READY or turn.going_on)
        ready = device.ready.first_place if looks_on else None
        if ready is None:
            return device.arriving if arriving is not None else None
        return device.ready if arriving is None or ready <= arriving else device.arriving

    def _keeps_for_others(self, device: DeviceRecord, turn: Turn) -> bool:
        """Whether higher priority than the blocked one's, whose memory is kept from it, was not looked at yet."""
        return any(
            claim.priority < turn.priority and waiter in device.arriving for waiter, claim in device.short.items()
        )

    def _serve(self, device: DeviceRecord, taken: _Taken, turn: Turn, now: float) -> bool:
        """Whether who was taken out of a line need not go back there: it was served, or refused."""
        place, _, waiter = taken
        if isinstance(waiter, HoldKey):
            return self._serve_hold(device, self._state.holds[waiter], turn, now)
        assert isinstance(waiter, ModelKey)
        model = self._state.models[waiter]
        if model.key in turn.summoned:
            return False
        if model.state is ModelState.RESIDENT:
            return self._ready.serve(waiter, place, turn, now)
        if model.state is ModelState.OFFLOADED or (model.state is ModelState.LOADING and model.weights is None):
            return self._serve_arriving(device, model, place, turn, now)
        return True  # It was put out earlier in this turn.

    def _serve_hold(self, device: DeviceRecord, hold: HoldRecord, turn: Turn, now: float) -> bool:
        claim = self._holds.claim(hold)
        if self._holds.take(hold, device, self._room_for(device, claim, turn)):
            turn.spare_bytes -= hold.size_bytes
            return True
        if self._waits(device, claim, turn, now):
            return False
        self._holds.give_up(hold, self._room.refusal(device, claim, "a hold"))
        return True

    def _serve_arriving(self, device: DeviceRecord, model: ModelRecord, place: float, turn: Turn, now: float) -> bool:
        claim = self._loads.claim(model, device, place)
        if self._loads.bring_in(model, device, self._room_for(device, claim, turn), now):
            turn.spare_bytes -= claim.needed_bytes
            return True
        stands_by = not model.may_evict and not model.queue
        if not stands_by and self._waits(device, claim, turn, now):
            return False
        if self._loads.forgo_warmup(model):
            return self._serve_arriving(device, model, place, turn, now)
        if stands_by:
            self._loads.stand_by(model)
        else:
            self._loads.refuse(model, device, claim, now)
        return True

    def _waits(self, device: DeviceRecord, claim: Claim, turn: Turn, now: float) -> bool:
        """Have room made for a newcomer that found none; False where it can't be had whatever happens."""
        if turn.blocked and not self._lets_by(claim, turn):
            return True
        return self._room.make(device, self._with_kept(device, claim), turn.for_another(), now)

    def _room_for(self, device: DeviceRecord, claim: Claim, turn: Turn) -> float:
        """What a newcomer may take: not what others keep, the blocked one needs, or the next who only lacks a slot."""
        free_bytes = self._room.free_bytes(device, claim) - self._kept_bytes(device, claim)
        return free_bytes if self._lets_by(claim, turn) else min(free_bytes, turn.spare_bytes)

    def _lets_by(self, claim: Claim, turn: Turn) -> bool:
        closing = claim.key is not None and self._state.models[claim.key].closing
        return turn.lets_by(claim.priority, closing=closing)

    def _kept_bytes(self, device: DeviceRecord, claim: Claim) -> int:
        """Bytes of whoever has a better place, and no lower priority, and waits for a slot alone."""
        place, key = device.ready.first_place, device.ready.first
        if place is None or place > claim.place or not isinstance(key, ModelKey) or key == claim.key:
            return 0
        model = self._state.models[key]
        if model.first_run is not None or model.runs or self._ready.priority(model) > claim.priority:
            return 0
        return self._ready.needed_bytes(model)

    def _with_kept(self, device: DeviceRecord, claim: Claim) -> Claim:
        kept_bytes = self._kept_bytes(device, claim)
        if not kept_bytes:
            return claim
        # Both need not be had together: what is kept comes free again when its run ends.
        most_bytes = max(claim.needed_bytes, self._room.obtainable_bytes(device, claim))
        needed_bytes = min(claim.needed_bytes + kept_bytes, most_bytes)
        return replace(claim, needed_bytes=needed_bytes)

    def claim_of(self, model: ModelRecord, device: DeviceRecord, place: float) -> Claim:
        """What a model in line needs: its next run or step, or to come into memory."""
        if model.state is ModelState.RESIDENT:
            return self._ready.claim(model, place)
        return self._loads.claim(model, device, place)
