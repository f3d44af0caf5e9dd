"""Who could make way for somebody, and how: the candidates from which victims are chosen."""

from collections.abc import Callable, Iterator

from moorage.domain.model import Isolation, ModelState, Preemption
from moorage.scheduling.claims import Claim
from moorage.scheduling.departures import is_idle
from moorage.scheduling.entries import Entry
from moorage.scheduling.policy import Resident
from moorage.scheduling.records import ModelRecord
from moorage.scheduling.reserves import Reserves, process_bytes
from moorage.scheduling.state import DeviceRecord, State
from moorage.scheduling.states import States, going, next_step_bytes, staying
from moorage.scheduling.victims import Victim, Way

# Assumed of a model that was never brought back or loaded yet, for the order of victims.
_LOAD_BYTES_PER_S = 1e9
# Below all priorities: of a request whose caller does not read.
_OF_NOBODY = 6


class Candidates:
    """Looks only; nothing is changed here."""

    def __init__(self, state: State, states: States) -> None:
        self._state = state
        self._states = states

    def stages(self, device: DeviceRecord, claim: Claim, now: float, *, guarded: bool) -> Iterator[list[Victim]]:
        """From the mildest to the harshest. Each is found only when those before do not suffice.

        Sizes are what comes free for the claim: not what is reserved for the victims' own models.
        """
        reserves = Reserves(self._state, device, claim)
        for stage in self._stages(device, claim, now, guarded=guarded):
            yield stage if claim.urgent else reserves.without(stage)

    def _stages(self, device: DeviceRecord, claim: Claim, now: float, *, guarded: bool) -> Iterator[list[Victim]]:
        idle = self.idle(device, claim, now, guarded=guarded)
        yield idle

        def of_each(find: Callable[[ModelRecord], list[Victim]]) -> list[Victim]:
            return [victim for model in device.models.values() for victim in find(model)]

        yield of_each(lambda model: self._process(model, claim, idle))
        if self._state.policy.preempts:
            yield of_each(lambda model: self._steps_that_end(model, claim))
            yield of_each(lambda model: self._preemptable(model, claim))
            yield of_each(lambda model: self._behind_states(model, claim, now))
        if claim.urgent:
            return
        if self._state.policy.preempts:
            yield of_each(lambda model: self._killable(model, claim, now))
        yield of_each(lambda model: self._busy(model, claim, now))
        if self._stands_still(device):
            yield of_each(lambda model: self._stuck(model, claim, now))
            yield of_each(lambda model: self._later_states(model, claim))

    def idle(self, device: DeviceRecord, claim: Claim, now: float, *, guarded: bool) -> list[Victim]:
        """Weights of models that nothing is computed for, and what stayed of them where they were offloaded."""
        victims = []
        for model in device.models.values():
            if model.weights is None or not is_idle(model):
                continue
            if self.may_go(model, claim) and not (guarded and self.guards(model, claim, now)):
                size_bytes = self.freed_bytes(model)
                if size_bytes:
                    victims.append(self._weights_victim(Way.EVICT, model, size_bytes, now))
        return victims

    def may_go(self, model: ModelRecord, claim: Claim) -> bool:
        """Whether a model's weights may be put out for a claim, as far as its own work is concerned."""
        if not self._can_leave(model, claim):
            return False
        if model.state is ModelState.OFFLOADED:
            holds_memory = model.weights is not None or model.spec.isolation is Isolation.DEDICATED
            return holds_memory and not model.queue and not model.wanted
        if model.state is not ModelState.RESIDENT:
            return False
        best = model.queue.best_priority
        if best is None or claim.urgent or best > claim.priority:
            return True
        head = model.queue.head
        # Of equal priority, whoever came first. Ageing alone puts nobody out.
        return best == claim.priority and head is not None and self._state.waiting_place(model, head) > claim.place

    def _can_leave(self, model: ModelRecord, claim: Claim) -> bool:
        if model.key == claim.key or model.share.pinned or model.closing or model.killed:
            return False
        return self._state.is_up(model)

    def guards(self, model: ModelRecord, claim: Claim, now: float) -> bool:
        """Whether it came in too lately to be put out, unless for higher priority."""
        return now < self.guarded_until_s(model) and (
            not self._state.policy.by_priority or model.share.priority <= claim.priority
        )

    def guarded_until_s(self, model: ModelRecord) -> float:
        """Until when a model that came in stays, unless for higher priority: at least as long as its coming took.

        So two models that can't both be there spend no more than half of the time on their ways.
        """
        return model.came_s + max(self._state.limits.min_residency_s, model.way_in_s)

    def freed_bytes(self, model: ModelRecord) -> int:
        """What its going would free for others: not what is reserved for it, and of a dedicated one that can't be
        offloaded, its worker's memory too."""
        leases = [lease for lease in (model.weights, model.first_run) if lease is not None]
        weights_bytes = sum(lease.size_bytes for lease in leases)
        host = self._state.device_of(model).host
        stays = model.state is ModelState.RESIDENT and model.can_offload and weights_bytes <= host.free_bytes
        if model.share.reserved_bytes:
            kept_bytes = max(0, model.share.reserved_bytes - (model.semaphore.held_bytes - weights_bytes))
            # Altogether it would lose its place on the device, and the reservation with it.
            return max(0, weights_bytes - kept_bytes) if stays else 0
        return weights_bytes if stays else weights_bytes + process_bytes(self._state, model)

    def _process(self, model: ModelRecord, claim: Claim, idle: list[Victim]) -> list[Victim]:
        """The process of a dedicated model that is offloaded, or that is to be but could go altogether."""
        size_bytes = 0 if model.share.reserved_bytes else process_bytes(self._state, model)
        offloaded = model.state is ModelState.OFFLOADED and model.weights is None
        offloaded = offloaded and is_idle(model) and self.may_go(model, claim)
        weights_bytes = next((victim.size_bytes for victim in idle if victim.key == model.key), None)
        resident = model.weights if model.state is ModelState.RESIDENT else None
        offloadable = resident is not None and weights_bytes == resident.size_bytes
        if size_bytes == 0 or not (offloaded or offloadable):
            return []
        return [Victim(Way.END, model.key, size_bytes, model.share.priority, 0.0, after_others=True)]

    def _weights_victim(
        self, way: Way, model: ModelRecord, size_bytes: int, now: float, *, after_others: bool = False
    ) -> Victim:
        worth = self.worth(model, size_bytes, _restore_s(model, size_bytes), now)
        priority = model.share.priority if self._state.policy.by_priority else 0
        return Victim(way, model.key, size_bytes, priority, worth, after_others=after_others)

    def worth(self, model: ModelRecord, size_bytes: int, restore_s: float, now: float) -> float:
        """By the policy's measure, what keeping so much of a model is worth. restore_s: what its going would cost."""
        resident = Resident(
            size_bytes=size_bytes,
            restore_s=restore_s,
            uses_per_s=model.usage.per_s(now),
            came_s=model.came_s,
            used_s=model.usage.last_s,
        )
        return self._state.policy.worth(resident)

    def _steps_that_end(self, model: ModelRecord, claim: Claim) -> list[Victim]:
        """The workspace of a step of lower priority: it comes free soon, and is not taken again before the claim."""
        run = model.run
        if run is None or run.step is None or run.workspace.leaving or run.workspace.size_bytes == 0:
            return []
        priority = min(entry.priority for entry in run.entries)
        if priority <= claim.priority:
            return []
        return [Victim(Way.WAIT, model.key, run.workspace.size_bytes, priority, 0.0)]

    def _preemptable(self, model: ModelRecord, claim: Claim) -> list[Victim]:
        """States of running requests of lower priority, each with what it would cost to bring it back, per byte."""
        return [self._state_victim(model, entry) for entry in staying(model) if self._gives_way(model, entry, claim)]

    def _gives_way(self, model: ModelRecord, entry: Entry, claim: Claim) -> bool:
        """Whose caller does not read gives way to anybody."""
        return (entry.paused or entry.priority > claim.priority) and self._states.may_preempt(model, entry)

    def _behind_states(self, model: ModelRecord, claim: Claim, now: float) -> list[Victim]:
        """Weights of models that are idle once all their running requests have given way."""
        if not model.active or not self.may_go(model, claim) or model.weights is None:
            return []
        if self.guards(model, claim, now):
            return []
        if not all(self._gives_way(model, entry, claim) for entry in staying(model)):
            return []
        return [self._weights_victim(Way.EVICT, model, self.freed_bytes(model), now, after_others=True)]

    def _busy(self, model: ModelRecord, claim: Claim, now: float) -> list[Victim]:
        """Models whose runs end by themselves: they get no others, and then go."""
        if not model.runs or model.runs[0].step is not None:
            return []
        if not self.may_go(model, claim) or self.guards(model, claim, now):
            return []
        if self._state.policy.preempts and self._killable(model, claim, now):
            return []  # counted before
        size_bytes = self.freed_bytes(model) + sum(run.workspace.size_bytes for run in model.runs)
        return [self._weights_victim(Way.DRAIN, model, size_bytes, now)]

    def _killable(self, model: ModelRecord, claim: Claim, now: float) -> list[Victim]:
        """Dedicated models that say that their process may be ended in the middle of a run. Whoever takes steps gives
        way between them, as all do."""
        worker, by = self._state.worker_of(model), model.spec.preemption.by
        if not model.runs or model.runs[0].step is not None:
            return []
        if worker is None or not worker.dedicated or by is not Preemption.KILL:
            return []
        if not self.may_go(model, claim) or self.guards(model, claim, now):
            return []
        most = model.spec.preemption.max_preemptions
        running = [entry for run in model.runs for entry in run.entries]
        if not all(entry.priority > claim.priority and entry.preemptions < most for entry in running):
            return []
        leases = (model.weights, worker.context, *(run.workspace for run in model.runs))
        size_bytes = sum(lease.size_bytes for lease in leases if lease is not None)
        return [Victim(Way.KILL, model.key, size_bytes, min(entry.priority for entry in running), 0.0)]

    def _stands_still(self, device: DeviceRecord) -> bool:
        """Whether nothing on the device ends by itself, so that what waits would wait for ever."""
        moving = {ModelState.LOADING, ModelState.RESTORING}
        return (
            device.runs == 0
            and device.budget.leaving_bytes == 0
            and not any(model.state in moving and model.weights is not None for model in device.models.values())
            and not any(self._goes_on(device, model) for model in device.models.values())
        )

    def _goes_on(self, device: DeviceRecord, model: ModelRecord) -> bool:
        """Whether what runs there has room for its next step."""
        running = going(model)
        if not running:
            return False
        room_bytes = min(device.budget.free_for(model.semaphore), model.semaphore.room_bytes)
        return next_step_bytes(model, running[0]) <= room_bytes

    def _stuck(self, model: ModelRecord, claim: Claim, now: float) -> list[Victim]:
        """Models that wait as the claim does, with nothing computed for them, and hold what it needs: of those at the
        same place one has to go first, and a process whose weights are away is loaded anew.

        Not those that have the memory for their first run: they only wait for their turn in it.
        """
        head = model.queue.head
        if head is None or not is_idle(model) or model.first_run is not None:
            return []
        if not self._can_leave(model, claim) or self.may_go(model, claim):
            return []
        best = model.queue.best_priority
        if best is None or best < claim.priority or self._state.waiting_place(model, head) < claim.place:
            return []
        if model.state is ModelState.RESIDENT:
            return [self._weights_victim(Way.EVICT, model, self.freed_bytes(model), now)]
        if model.state is ModelState.OFFLOADED:
            kept_bytes = model.weights.size_bytes if model.weights is not None else 0
            size_bytes = kept_bytes + process_bytes(self._state, model)
            return [Victim(Way.END, model.key, size_bytes, model.share.priority, 0.0)]
        return []

    def _later_states(self, model: ModelRecord, claim: Claim) -> list[Victim]:
        """Running requests that stand in each other's way: the last to come gives way, though of equal priority.

        Of two that came at the same moment, one counts as the later, and always the same: its model's name says which.
        """
        came_first = (claim.place, claim.key) if claim.key is not None else (claim.place, model.key)
        return [
            self._state_victim(model, entry)
            for entry in going(model)
            if entry.priority >= claim.priority
            and (self._state.place_of(model, entry), model.key) > came_first
            and not self._gives_way(model, entry, claim)  # counted before
        ]

    def _state_victim(self, model: ModelRecord, entry: Entry) -> Victim:
        assert entry.state is not None
        size_bytes = entry.state.size_bytes
        worth = self._states.way_back_s(model, entry) / max(1, size_bytes)
        priority = _OF_NOBODY if entry.paused else entry.priority
        return Victim(Way.SUSPEND, model.key, size_bytes, priority, worth, entry.request.request_id)


def _restore_s(model: ModelRecord, size_bytes: int) -> float:
    measured = model.measured
    if model.can_offload and measured.restore_s is not None:
        return measured.restore_s
    return load_s(model, size_bytes)


def load_s(model: ModelRecord, size_bytes: int) -> float:
    """What loading the model from disk takes, as measured, or else by its size."""
    return model.measured.load_s if model.measured.load_s is not None else size_bytes / _LOAD_BYTES_PER_S
