"""Answers "could this model run n items at priority p now?" without doing anything about it."""

from moorage.domain.model import ModelKey, ModelState
from moorage.scheduling.admission import never_fits
from moorage.scheduling.budget import DeviceBudget
from moorage.scheduling.claims import Claim
from moorage.scheduling.explain import Explanation, Holder, Verdict
from moorage.scheduling.placement import candidates, expected_state_bytes, expected_weights_bytes, largest_device
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
    Verdict.NEVER: "it exceeds what the device can offer",
}


def explain(state: State, room: Room, key: ModelKey, rows: int, priority: int, now: float) -> Explanation | None:
    """What would happen; None where no device matches the model. priority: 0 for the model's own."""
    model = state.models[key]
    device = _device(state, model)
    if device is None:
        return None
    priority = priority or model.share.priority
    share = model.semaphore if model.semaphore in device.budget.shares else None
    needed_bytes = _needed_bytes(model, device, rows)
    place = now + priority * state.limits.ageing_s
    claim = Claim(key, place, priority, needed_bytes, share, key)
    missing_bytes = room.missing_bytes(device, claim)
    victims = room.victims(device, claim, missing_bytes, now) if missing_bytes > 0 else []
    obtainable_bytes = room.obtainable_bytes(device, claim)
    verdict = _verdict(claim, device.budget, victims, obtainable_bytes)
    if never_fits(state, model, rows) is not None:
        verdict = Verdict.NEVER
    return Explanation(
        verdict=verdict,
        device=device.name,
        priority=priority,
        rows=rows,
        needed_bytes=needed_bytes,
        free_bytes=device.budget.free_for(share),
        missing_bytes=max(0, missing_bytes) if victims is None else 0,
        evict=tuple(_holder(victim) for victim in victims or () if victim.way in _EVICTING),
        preempt=tuple(_holder(victim) for victim in victims or () if victim.way in _PREEMPTING),
        holders=_holders(state, device),
        reason=_REASONS[verdict],
    )


def _device(state: State, model: ModelRecord) -> DeviceRecord | None:
    if model.device is not None:
        return state.devices[model.device]
    fitting = candidates(model, state.devices)
    return fitting[0] if fitting else largest_device(model.spec, state.devices)


def _needed_bytes(model: ModelRecord, device: DeviceRecord, rows: int) -> int:
    """Weights that are not there yet, and that run's own memory."""
    execution_bytes = model.spec.memory.workspace_bytes(rows) + expected_state_bytes(model)
    if model.state in {ModelState.RESIDENT, ModelState.RESTORING} or model.weights is not None:
        return execution_bytes
    context_bytes = 0 if model.worker is not None else device.limits.context_bytes
    return execution_bytes + expected_weights_bytes(model) + context_bytes


def _verdict(claim: Claim, budget: DeviceBudget, victims: list[Victim] | None, obtainable_bytes: int) -> Verdict:
    if claim.needed_bytes <= budget.free_for(claim.share):
        return Verdict.NOW
    if victims is None:
        return Verdict.WAIT if claim.needed_bytes <= obtainable_bytes else Verdict.NEVER
    ways = {victim.way for victim in victims}
    if ways & _PREEMPTING:
        return Verdict.PREEMPT
    return Verdict.WAIT if not ways or ways & {Way.WAIT, Way.DRAIN} else Verdict.EVICT


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
