"""Models in memory whose turn it is: the next run or step is begun, or room is made for it."""

from collections.abc import Callable

from moorage.domain.model import ModelKey, ModelState
from moorage.scheduling.claims import Claim
from moorage.scheduling.entries import Entry
from moorage.scheduling.placement import most_workspace_bytes
from moorage.scheduling.records import ModelRecord
from moorage.scheduling.requests import Requests
from moorage.scheduling.room import Room, Turn
from moorage.scheduling.runs import Runs
from moorage.scheduling.state import DeviceRecord, State
from moorage.scheduling.states import going, staying
from moorage.scheduling.stepping import Steps

_MOVING = {ModelState.LOADING, ModelState.RESTORING, ModelState.OFFLOADING, ModelState.UNLOADING}


class Ready:
    """Serves models that have work and only lack a run slot, or memory for it."""

    def __init__(self, state: State, requests: Requests, runs: Runs, steps: Steps, room: Room) -> None:
        self._state = state
        self._requests = requests
        self._runs = runs
        self._steps = steps
        self._room = room

    def claim(self, model: ModelRecord, place: float, above: int | None = None) -> Claim:
        """What the model's next run or step needs. Whoever runs there has come before those who came after it, whatever
        turn its next step has.

        above: only who is of higher priority than this may begin.
        """
        place = min([place, *(self._state.place_of(model, entry) for entry in going(model))])
        needed_bytes = self.needed_bytes(model, above)
        return Claim(model.key, place, self.priority(model), needed_bytes, model.semaphore, model.key)

    def needed_bytes(self, model: ModelRecord, above: int | None = None) -> int:
        """What the smallest next run or step takes."""
        first = model.queue.head
        if above is not None:
            first = next((entry for entry in model.queue if entry.priority < above), None)
        return self._steps.needed_bytes(model, first) if model.stepped else self._runs.needed_bytes(model, first)

    def priority(self, model: ModelRecord) -> int:
        """The highest of its running and waiting requests."""
        priorities = [entry.priority for entry in going(model)]
        waiting = model.queue.best_priority
        return min(priorities + ([] if waiting is None else [waiting]), default=model.share.priority)

    def serve(self, key: ModelKey, place: float, turn: Turn, now: float) -> bool:
        """Begin the model's next run or step, or have room made for it; whether it need not go back to its place."""
        model = self._state.models[key]
        device = self._state.device_of(model)
        if self._leaves_the_slot(device, model):
            return False
        if self._start(device, model, place, turn, now):
            return True
        if turn.blocked and not model.runs:
            self._give_up_first_run(model, self.needed_bytes(model))
        if model.runs or (turn.blocked and not self._goes_on(model, turn)):
            return False  # A further run takes only what is free: nobody goes for it, as one of its own ends soon.
        claim = self.claim(model, place, turn.priority if turn.blocked else None)
        turn.refused = self._is_short(device, claim, model, turn.for_another(), now)
        # Who is next has a place of their own: it is found anew, as for everything that changed.
        return turn.refused or bool(model.runs)

    def end_standstill(self, device: DeviceRecord, now: float) -> None:
        """Where nothing runs, comes or goes, and yet nobody could begin, each waits for another to end: those who run
        have outgrown what there is. The last of them in line makes do with what is there, or is given up."""
        if device.budget.leaving_bytes or device.gathering or device.returning or (device.guarded_until_s or 0.0) > now:
            return
        models = device.models.values()
        if any(model.state in _MOVING or not self._state.is_up(model) for model in models):
            return
        stuck = [(device.short[model.key], model) for model in models if model.key in device.short and going(model)]
        if stuck:
            _, last = max(stuck, key=lambda claimed: (claimed[0].priority, claimed[0].place))
            self._steps.squeeze(last, device, now)

    def _leaves_the_slot(self, device: DeviceRecord, model: ModelRecord) -> bool:
        """Whether the last slot is about to be wanted by higher priority, whose memory is on its way."""
        if device.runs + 1 < device.limits.run_slots or device.budget.leaving_bytes == 0:
            return False
        priority = self.priority(model)
        return any(
            claim.priority < priority and waiter in device.ready and self._room.missing_bytes(device, claim) <= 0
            for waiter, claim in device.short.items()
        )

    def _goes_on(self, model: ModelRecord, turn: Turn) -> bool:
        """Whether this model need not wait for the blocked one, as its running steps may be what that one waits for
        and may not put out."""
        return turn.lets_by(self.priority(model), closing=model.closing) or (turn.going_on and bool(going(model)))

    def _is_short(self, device: DeviceRecord, claim: Claim, model: ModelRecord, turn: Turn, now: float) -> bool:
        """Deal with a model that found no room; whether that was to refuse its first request."""
        self._give_up_first_run(model, claim.needed_bytes)
        if claim.needed_bytes > self._own_room_bytes(model):
            return self._exceeds_its_limit(device, model, now)
        if claim.needed_bytes <= self._room.free_bytes(device, claim):
            return False  # States of its own are still leaving.
        if self._room.make(device, claim, turn, now):
            if turn.going_on:
                self._start(device, model, claim.place, turn, now)
            return False
        if self._yields(device, model, self._room.obtainable_bytes(device, claim)):
            return False
        return self._gives_up(device, model, claim, now)

    def _give_up_first_run(self, model: ModelRecord, needed_bytes: int) -> None:
        """What was leased for a smaller first run is no more than free memory to who is first now; and whoever is
        blocked may wait for it, as its own model can't begin with it."""
        if model.first_run is not None and model.first_run.size_bytes < needed_bytes:
            self._state.end_first_run(model)
            self._state.stir(self._state.device_of(model).name)

    def _exceeds_its_limit(self, device: DeviceRecord, model: ModelRecord, now: float) -> bool:
        """Deal with a model whose own limit leaves too little; whether that was to refuse its first request."""
        if self._yields(device, model, most_workspace_bytes(model, device)):
            return False
        if not staying(model) and self._refuse_too_large(model):
            return True
        self._steps.squeeze(model, device, now)
        return False

    def _gives_up(self, device: DeviceRecord, model: ModelRecord, claim: Claim, now: float) -> bool:
        """Deal with a model whose next run or step can't be had; whether that was to refuse its first request."""
        if staying(model):
            self._steps.squeeze(model, device, now)
            return False
        return self._refuse_head(device, model, claim, now)

    def _yields(self, device: DeviceRecord, model: ModelRecord, most_bytes: float) -> bool:
        """Whether what was measured of runs gives way to what can be had: who may run by what is declared shall run."""
        if not model.workspaces.has_learned or model.workspaces.most_bytes <= most_bytes:
            return False
        model.workspaces.most_bytes = most_bytes
        self._state.stir(device.name)
        return True

    def _start(self, device: DeviceRecord, model: ModelRecord, place: float, turn: Turn, now: float) -> bool:
        """Begin the model's next run or step, if there is room.

        What the blocked one waits for goes on in all the room there is, but only of higher priority may anybody join.
        """
        before_bytes = device.budget.leased_bytes
        first_bytes = model.first_run.size_bytes if model.first_run is not None else 0
        free_bytes = device.budget.free_for(model.semaphore, without_bytes=first_bytes)
        own_bytes = min(self._own_room_bytes(model), free_bytes)
        left_bytes = self._room.free_bytes(device, self.claim(model, place)) if device.short else free_bytes
        starter = self._steps if model.stepped else self._runs
        room_bytes = min(min(left_bytes, turn.spare_bytes) + first_bytes, own_bytes)
        began = starter.start(model, room_bytes, now, self._joining(device, model))
        if not began and self._goes_on(model, turn):
            began = starter.start(model, own_bytes, now, lambda entry: self._may_pass(model, entry, turn))
        if began and model.spec.instances > 1 and model.queue:
            # Another instance may take what is left: its place is found before anybody else is served.
            self._state.touch(model)
            turn.refused = True
        taken_bytes = device.budget.leased_bytes - before_bytes if began else 0
        turn.spare_bytes -= taken_bytes
        if taken_bytes < 0:
            # It took less than was kept for it: those who were passed over may fit now.
            self._state.stir(device.name)
        return began

    def _may_pass(self, model: ModelRecord, entry: Entry, turn: Turn) -> bool:
        """Whether a request may begin before the blocked one has its turn."""
        return model.closing or (entry.priority < turn.priority and not (model.runs and entry.stands_alone))

    def _joining(self, device: DeviceRecord, model: ModelRecord) -> Callable[[Entry], bool] | None:
        """Who may share the run of who is first: nobody who stands behind others that are short of memory."""
        if not device.short:
            return None
        others = [claim for claim in device.short.values() if claim.key != model.key]
        if not others:
            return None
        first = None if going(model) else model.queue.head

        def may_join(entry: Entry) -> bool:
            place = self._state.waiting_place(model, entry)
            return entry is first or all(entry.priority < it.priority or place < it.place for it in others)

        return may_join

    def _own_room_bytes(self, model: ModelRecord) -> float:
        """What its own limit leaves its next run or step."""
        return model.semaphore.room_bytes + (model.first_run.size_bytes if model.first_run is not None else 0)

    def _refuse_too_large(self, model: ModelRecord) -> bool:
        """Answer the request whose turn it is if it exceeds what its model may ever have; whether it did."""
        head = model.queue.head
        return head is not None and self._requests.refuse_if_it_never_fits(model, head)

    def _refuse_head(self, device: DeviceRecord, model: ModelRecord, claim: Claim, now: float) -> bool:
        """Answer the request that can't be had beside what stays, if not half of it can; False where there is none."""
        head = model.queue.head
        if head is None:
            return False
        what = f"a run of {head.request.rows} rows of model '{model.key.name}'"
        self._requests.refuse_or_halve(model, head, self._room.refusal(device, claim, what), now)
        return True
