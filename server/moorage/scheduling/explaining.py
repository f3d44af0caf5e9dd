"""Answers "could this model run n items at priority p now?" without doing anything about it."""

from dataclasses import replace

from moorage.domain.model import ModelKey, ModelState
from moorage.scheduling.admission import fitting_rows, never_fits
from moorage.scheduling.claims import Claim
from moorage.scheduling.explain import Explanation, Holder, Verdict
from moorage.scheduling.loads import Loads
from moorage.scheduling.placement import candidates, execution_bytes, largest_device
from moorage.scheduling.records import ModelRecord
from moorage.scheduling.room import Room
from moorage.scheduling.state import DeviceRecord, State
from moorage.scheduling.victims import Victim, Way

_EVICTING = {Way.EVICT, Way.END, Way.DRAIN}
_PREEMPTING = {Way.SUSPEND, Way.KILL}
_KINDS = {Way.END: "context", Way.SUSPEND: "state"}

_REASONS = {
    Verdict.NOW: "memory is free",
    Verdict.EVICT: "idle models would be put out first",
    Verdict.PREEMPT: "work of lower priority would give way first",
    Verdict.WAIT: "it would wait for work under way to end",
    Verdict.REFUSED: "what others hold there stays: it would be refused for now",
    Verdict.NEVER: "it exceeds what the device can offer",
}


class Explaining:
    """Looks only; nothing is changed here."""

    def __init__(self, state: State, loads: Loads, room: Room) -> None:
        self._state = state
        self._loads = loads
        self._room = room

    def explain(self, key: ModelKey, rows: int, priority: int, now: float) -> Explanation | None:
        """What would happen; None where no device matches the model. priority: 0 for the model's own.

        Of rows that would be split it says what would happen to the first run of them.
        """
        model = self._state.models[key]
        device = _device(self._state, model)
        if device is None:
            return None
        run_rows = fitting_rows(self._state, model, rows)
        claim = self._claim(model, device, run_rows, priority or model.share.priority, now)
        missing_bytes = self._room.missing_bytes(device, claim)
        victims = self._room.victims(device, claim, missing_bytes, now) if missing_bytes > 0 else []
        never = never_fits(self._state, model, run_rows) is not None
        verdict = Verdict.NEVER if never else self._verdict(device, claim, victims)
        return Explanation(
            verdict=verdict,
            device=device.name,
            priority=claim.priority,
            rows=rows,
            needed_bytes=claim.needed_bytes,
            free_bytes=self._room.free_bytes(device, claim),
            missing_bytes=max(0, missing_bytes) if victims is None else 0,
            evict=tuple(_holder(victim) for victim in victims or () if victim.way in _EVICTING),
            preempt=tuple(_holder(victim) for victim in victims or () if victim.way in _PREEMPTING),
            holders=_holders(self._state, device),
            reason=_REASONS[verdict],
        )

    def _claim(self, model: ModelRecord, device: DeviceRecord, rows: int, priority: int, now: float) -> Claim:
        """That run's own memory, and what the model takes to come in unless it is there or has its memory."""
        share = model.semaphore if model.semaphore in device.budget.shares else None
        place = now + priority * self._state.limits.ageing_s
        has_memory = model.state is ModelState.LOADING and model.weights is not None
        if has_memory or model.state in {ModelState.RESIDENT, ModelState.RESTORING}:
            needed_bytes = execution_bytes(model, rows)
        else:
            needed_bytes = self._loads.needed_bytes(model, device, rows)
        claim = Claim(model.key, place, priority, needed_bytes, share, model.key)
        if model.spec.warmup and needed_bytes > self._room.obtainable_bytes(device, claim):
            claim = replace(claim, needed_bytes=self._loads.needed_bytes(model, device, rows, cold=True))
        return claim

    def _verdict(self, device: DeviceRecord, claim: Claim, victims: list[Victim] | None) -> Verdict:
        if claim.needed_bytes <= self._room.free_bytes(device, claim):
            return Verdict.NOW
        if claim.needed_bytes > device.budget.configured_bytes:
            return Verdict.NEVER
        if victims is None:
            fits = claim.needed_bytes <= self._room.obtainable_bytes(device, claim)
            return Verdict.WAIT if fits else Verdict.REFUSED
        ways = {victim.way for victim in victims}
        if ways & _PREEMPTING:
            return Verdict.PREEMPT
        return Verdict.WAIT if not ways or ways & {Way.WAIT, Way.DRAIN} else Verdict.EVICT


def _device(state: State, model: ModelRecord) -> DeviceRecord | None:
    if model.device is not None:
        return state.devices[model.device]
    fitting = candidates(model, state.devices)
    return fitting[0] if fitting else largest_device(model.spec, state.devices)


def _holder(victim: Victim) -> Holder:
    return Holder(str(victim.key), _KINDS.get(victim.way, "weights"), victim.size_bytes, victim.priority)


def _holders(state: State, device: DeviceRecord) -> tuple[Holder, ...]:
    """Everybody on the device, by owner and kind, the largest first."""
    priorities = {str(key): model.share.priority for key, model in device.models.items()}
    priorities |= {str(key): hold.priority for key, hold in state.holds.items()}
    sums: dict[tuple[str, str], int] = {}
    for lease in device.budget.leases:
        sums[lease.owner, lease.kind.value] = sums.get((lease.owner, lease.kind.value), 0) + lease.size_bytes
    ordered = sorted(sums.items(), key=lambda item: (-item[1], item[0]))
    return tuple(
        Holder(owner, kind, size_bytes, priorities.get(owner, 0)) for (owner, kind), size_bytes in ordered if size_bytes
    )
