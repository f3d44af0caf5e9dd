"""Making room for whoever is first in line: which of the others go, in which way, and whether waiting makes sense."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from moorage.domain.errors import MemoryExhausted
from moorage.domain.model import ModelKey, ModelState
from moorage.scheduling.budget import Lease, LeaseKind
from moorage.scheduling.candidates import Candidates
from moorage.scheduling.claims import Claim, urgent_claim
from moorage.scheduling.departures import Departures
from moorage.scheduling.records import ModelRecord
from moorage.scheduling.semaphore import MemorySemaphore
from moorage.scheduling.state import DeviceRecord, State
from moorage.scheduling.states import States, going, staying
from moorage.scheduling.timers import GuardDue
from moorage.scheduling.victims import Victim, Way, choose
from moorage.scheduling.workers import Workers

# Ways that wait for a run or a step to end. Meanwhile somebody who came in too lately may have stayed long enough.
_ENDS_BY_ITSELF = {Way.DRAIN, Way.WAIT}


@dataclass(slots=True)
class Turn:
    """One look at all who wait on a device, in order.

    blocked: somebody could not have what they need. From then on others may take no more than spare_bytes, which the
    one who is blocked can do without. priority: theirs. going_on: they wait for others whom they may not put out, and
    who therefore go on. refused: somebody's first request was, or one of several instances took it, so that the next
    one's place is to be found before anybody else is served. summoned: models that are to go as soon as their runs end,
    so that they get no other.
    """

    spare_bytes: float = float("inf")
    blocked: bool = False
    priority: int = 0
    going_on: bool = False
    refused: bool = False
    summoned: set[ModelKey] = field(default_factory=set)
    passed_arriving: int = 0
    passed_ready: int = 0

    def yields_to(self, priority: int) -> bool:
        """Whether somebody of that priority need not wait for who is blocked: age alone gave that one its place."""
        return self.blocked and priority < self.priority

    def lets_by(self, priority: int, *, closing: bool) -> bool:
        """Whether somebody need not wait for who is blocked: of higher priority, or about to go for good, once done
        with the work that is left."""
        return self.yields_to(priority) or (self.going_on and closing)

    def for_another(self) -> "Turn":
        """What somebody who need not wait for who is blocked has made room in: the same turn where nobody is."""
        return Turn(summoned=self.summoned) if self.blocked else self


class Room:
    """Finds victims, and sends them away."""

    def __init__(
        self, state: State, candidates: Candidates, departures: Departures, states: States, workers: Workers
    ) -> None:
        self._state = state
        self._candidates = candidates
        self._departures = departures
        self._states = states
        self._workers = workers

    def missing_bytes(self, device: DeviceRecord, claim: Claim) -> int:
        """What the claim lacks beyond what is free for it, or about to be, and is not kept for others."""
        kept_bytes = self._kept_bytes(device, claim)
        return claim.needed_bytes + kept_bytes - device.budget.free_for(claim.share) - device.budget.leaving_bytes

    def free_bytes(self, device: DeviceRecord, claim: Claim) -> int:
        """What the claim may take now: not what higher priority waits for, however long this one has waited.

        Age raises a place in the line, but of memory that was freed for higher priority it takes nothing. Nor does
        who gave way for a running request that came before, and whose turn is not yet.
        """
        free_bytes = device.budget.free_for(claim.share)
        kept_bytes = self._kept_bytes(device, claim) if device.short else 0
        if kept_bytes == 0:
            return free_bytes
        return min(free_bytes, max(0, free_bytes + device.budget.leaving_bytes - kept_bytes))

    def _kept_bytes(self, device: DeviceRecord, claim: Claim) -> int:
        """The most that somebody whom memory is kept for is short of."""
        return max(
            (other.needed_bytes for other in device.short.values() if self._goes_before(other, claim)), default=0
        )

    def _goes_before(self, other: Claim, claim: Claim) -> bool:
        """Whether memory is kept for another: of higher priority, or running and of the same, having come before."""
        if other.key == claim.key or other.priority != claim.priority:
            return other.priority < claim.priority and other.key != claim.key
        if other.key is None or (other.place, other.key) >= (claim.place, claim.key or other.key):
            return False
        return bool(going(self._state.models[other.key]))

    def make(self, device: DeviceRecord, claim: Claim, turn: Turn, now: float) -> bool:
        """Begin to make room for a claim that is blocked; False where it can't be had whatever happens."""
        missing_bytes = self.missing_bytes(device, claim)
        victims = self.victims(device, claim, missing_bytes, now) if missing_bytes > 0 else []
        if victims is None and claim.needed_bytes > self.obtainable_bytes(device, claim):
            return False
        if victims is None or any(victim.way in _ENDS_BY_ITSELF for victim in victims):
            self._look_again(device, claim, now)
        device.short[claim.waiter] = claim
        turn.blocked = True
        turn.priority = claim.priority
        turn.going_on = victims is None
        turn.spare_bytes = (
            sum(victim.size_bytes for victim in victims or ()) - missing_bytes if not turn.going_on else 0
        )
        leaving_bytes = device.budget.leaving_bytes
        self._send_all(victims or [], turn, now)
        if len(device.short) > 1 and device.budget.leaving_bytes > leaving_bytes:
            # What is about to come free may be enough for whom memory is kept for, and what is free do for this one.
            self._state.stir(device.name)
        return True

    def victims(self, device: DeviceRecord, claim: Claim, missing_bytes: int, now: float) -> list[Victim] | None:
        """Whom the claim would put out, in order; None if that is not enough now."""
        return choose(self._candidates.stages(device, claim, now, guarded=True), missing_bytes)

    def cost(self, device: DeviceRecord, claim: Claim, missing_bytes: int, now: float) -> float:
        """What would be lost if room were made here; infinite where it can't be made now."""
        victims = choose([self._candidates.idle(device, claim, now, guarded=True)], missing_bytes)
        return float("inf") if victims is None else sum(victim.worth * victim.size_bytes for victim in victims)

    def relieve(self, device: DeviceRecord, now: float) -> None:
        """Others took memory that was leased already: put out what is needed, or else all that can go."""
        claim = urgent_claim(device.name)
        missing_bytes = device.budget.overdrawn_bytes - device.budget.leaving_bytes
        if missing_bytes <= 0:
            return
        stages = list(self._candidates.stages(device, claim, now, guarded=False))
        victims = choose(stages, missing_bytes)
        if victims is None:
            victims = [victim for stage in stages for victim in stage]
        self._send_all(victims, Turn(), now)

    def _send_all(self, victims: list[Victim], turn: Turn, now: float) -> None:
        ending = {victim.key for victim in victims if victim.way is Way.END}
        for victim in victims:
            self._send(victim, turn, now, altogether=victim.key in ending)

    def _send(self, victim: Victim, turn: Turn, now: float, *, altogether: bool) -> None:
        model = self._state.models[victim.key]
        match victim.way:
            case Way.EVICT if not victim.after_others:
                self._departures.evict(model, now, altogether=altogether)
            case Way.END if model.state is ModelState.OFFLOADED:
                self._departures.evict(model, now, altogether=True)
            case Way.END:
                pass
            case Way.SUSPEND:
                self._states.give_way(model, model.active[victim.request_id], now)
            case Way.KILL:
                self._kill(model)
            case Way.EVICT:
                # Also those that keep nothing: while they run, the weights can't go.
                for entry in staying(model):
                    self._states.give_way(model, entry, now)
                turn.summoned.add(victim.key)
            case _:
                turn.summoned.add(victim.key)

    def _kill(self, model: ModelRecord) -> None:
        worker = self._state.workers[model.worker or ""]
        model.killed = True
        budget = self._state.device_of(model).budget
        for lease in (model.weights, worker.context, *(run.workspace for run in model.runs)):
            if lease is not None:
                budget.leave(lease)
        self._workers.kill(worker, f"{model.key} gave way to work of higher priority")

    def obtainable_bytes(self, device: DeviceRecord, claim: Claim) -> int:
        """What the claim could have if everything that can go or end did."""
        owners = _owners(device)
        staying = self._staying(device, claim, owners)
        reserved = [share for share in device.budget.shares if share.reserved_bytes and share is not claim.share]
        fixed_bytes = sum(lease.size_bytes for lease in staying if lease.share not in reserved)
        for share in reserved:
            held_bytes = sum(lease.size_bytes for lease in staying if lease.share is share)
            parts = owners[share].state is ModelState.UNLOADING
            fixed_bytes += held_bytes if parts else max(share.reserved_bytes, held_bytes)
        return device.budget.capacity_bytes - fixed_bytes

    def refusal(self, device: DeviceRecord, claim: Claim, what: str) -> MemoryExhausted:
        """That the claim can't be had beside what stays, and who holds that."""
        most_bytes = max(0, self.obtainable_bytes(device, claim))
        staying = self._staying(device, claim, _owners(device))
        return device.budget.exhausted(what, claim.needed_bytes, most_bytes, staying)

    def _staying(
        self, device: DeviceRecord, claim: Claim, owners: Mapping[MemorySemaphore, ModelRecord]
    ) -> list[Lease]:
        return [lease for lease in device.budget.leases if self._stays(lease, claim, owners)]

    def _stays(self, lease: Lease, claim: Claim, owners: Mapping[MemorySemaphore, ModelRecord]) -> bool:
        if lease.kind is LeaseKind.STATE and lease.share is claim.share:
            return True
        if lease.leaving or lease.kind in {LeaseKind.WORKSPACE, LeaseKind.STATE}:
            return False
        if lease.share is not None:
            return self._remains(owners[lease.share].key, claim)
        worker = self._state.workers.get(lease.owner)
        if lease.kind is not LeaseKind.CONTEXT or worker is None or not worker.dedicated:
            return True
        return any(self._remains(key, claim) or self._keeps_its_place(key) for key in worker.models)

    def _remains(self, key: ModelKey, claim: Claim) -> bool:
        """Whether a model's weights don't go for this claim: its own, pinned ones, and those whose going would free
        nothing, as all of it is reserved for them."""
        model = self._state.models[key]
        if key == claim.key or model.share.pinned:
            return True
        return model.state is ModelState.RESIDENT and self._candidates.freed_bytes(model) == 0

    def _keeps_its_place(self, key: ModelKey) -> bool:
        """Whether a model goes to the host at most, and its process stays, as it would lose what is reserved for it."""
        model = self._state.models[key]
        return model.share.reserved_bytes > 0 and not model.closing

    def _look_again(self, device: DeviceRecord, claim: Claim, now: float) -> None:
        """Have the device looked at when the first of those who came in lately may go."""
        ends = [
            self._candidates.guarded_until_s(model)
            for model in device.models.values()
            if self._candidates.may_go(model, claim) and self._candidates.guards(model, claim, now)
        ]
        until_s = device.guarded_until_s
        if ends and (until_s is None or until_s <= now or min(ends) < until_s):
            device.guarded_until_s = min(ends)
            self._state.timers.add(device.guarded_until_s, GuardDue(device.name))


def _owners(device: DeviceRecord) -> dict[MemorySemaphore, ModelRecord]:
    """Whose share each of the device's shares is."""
    return {model.semaphore: model for model in device.models.values()}
