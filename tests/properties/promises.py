"""What must hold at every moment, whatever happens."""

from collections.abc import Mapping
from dataclasses import dataclass

from moorage.domain.model import ModelKey, ModelState
from moorage.scheduling.claims import Claim
from moorage.scheduling.records import ModelRecord
from moorage.scheduling.scheduler import Scheduler
from moorage.scheduling.state import DeviceRecord, HoldKey, State
from moorage.scheduling.states import going, next_step_bytes
from moorage.scheduling.victims import Way
from tests.properties.processes import Process


@dataclass(frozen=True)
class Before:
    """What the promises compare with: how it was before an event."""

    overdrawn: Mapping[str, int]
    going: frozenset[int]
    preemptions: Mapping[int, int]
    executing: Mapping[str, int]
    first_runs: Mapping[ModelKey, int]
    short: frozenset[object]
    runs: frozenset[int]


def before(state: State) -> Before:
    entries = state.entries
    return Before(
        {name: device.budget.overdrawn_bytes for name, device in state.devices.items()},
        frozenset(running(state)),
        {request_id: entry.preemptions for request_id, entry in entries.items()},
        {str(key): model.semaphore.executing_bytes for key, model in state.models.items()},
        {key: model.first_run.size_bytes if model.first_run else 0 for key, model in state.models.items()},
        frozenset(waiter for device in state.devices.values() for waiter in device.short),
        frozenset(state.runs),
    )


def running(state: State) -> set[int]:
    """Stepped requests with a state on a device."""
    return {request_id for model in state.models.values() for request_id in model.active}


def check(scheduler: Scheduler, processes: Mapping[str, Process], was: Before, *, excused: bool, now: float) -> None:
    """Hold the scheduler's books against themselves and against what processes really hold.

    excused: the event itself told of memory that was taken already.
    """
    scheduler.check_integrity()
    for name, device in scheduler.state.devices.items():
        budget = device.budget
        held_bytes = sum(process.held_bytes for process in processes.values() if process.device == name)
        host_bytes = sum(process.host_bytes for process in processes.values() if process.device == name)
        assert held_bytes <= budget.leased_bytes
        assert host_bytes <= device.host.leased_bytes
        assert budget.free_bytes + budget.leased_bytes == budget.capacity_bytes + budget.overdrawn_bytes
        assert excused or budget.overdrawn_bytes <= was.overdrawn[name], "it gave out more than there is"
        for share in budget.shares:
            most_bytes = max(share.limit_bytes or 0, was.executing.get(share.owner, 0))
            assert share.limit_bytes is None or excused or share.executing_bytes <= most_bytes
        _nobody_forgotten(scheduler, device, now)
    _only_higher_preempts(scheduler.state, was)


def waiting_claims(
    scheduler: Scheduler, device: DeviceRecord, *, without_slot: bool = False
) -> list[tuple[float, Claim, ModelRecord | None]]:
    """What everybody in the device's lines needs, the best place first.

    without_slot: those too who could not go on for want of a run slot. A model that runs already and would have a
    further run at once is not among them: it takes what is free, and nobody makes room for it.
    """
    state = scheduler.state
    ready = without_slot or device.runs < device.limits.run_slots
    lines = ([device.ready] if ready else []) + [device.arriving]
    claims: list[tuple[float, Claim, ModelRecord | None]] = []
    for line in lines:
        for waiter in line:
            place = line.place_of(waiter)
            if isinstance(waiter, HoldKey):
                hold = state.holds[waiter]
                claims.append((place, Claim(waiter, place, hold.priority, hold.size_bytes), None))
            else:
                assert isinstance(waiter, ModelKey)
                model = state.models[waiter]
                if model.runs:
                    continue
                claims.append((place, scheduler.claim_of(model, device, place), model))
    return sorted(claims, key=lambda item: item[0])


def _nobody_forgotten(scheduler: Scheduler, device: DeviceRecord, now: float) -> None:
    """Whoever is first in line could not go on even now, and whoever could make way for them has been told to."""
    _no_instance_forgotten(scheduler, device)
    claims = waiting_claims(scheduler, device)
    if not claims:
        return
    _, claim, model = claims[0]
    if model is not None and model.state is ModelState.RESIDENT:
        if _waits_for_itself(model, claim) or _slot_is_spoken_for(device, claim):
            return
        assert claim.needed_bytes > scheduler.room.free_bytes(device, claim), f"{model.key} was forgotten"
    elif _kept_for_ready(device, claim):
        return  # It needs room beside whoever only lacks a slot: more than the claim says.
    else:
        assert claim.needed_bytes > scheduler.room.free_bytes(device, claim), f"{claim} was forgotten"
    missing_bytes = scheduler.room.missing_bytes(device, claim)
    if missing_bytes > 0:
        victims = scheduler.room.victims(device, claim, missing_bytes, now) or []
        told = {victim.way for victim in victims if not victim.after_others}
        assert not told & {Way.EVICT, Way.SUSPEND, Way.KILL}, f"{claim} could have room from {victims}"


def _no_instance_forgotten(scheduler: Scheduler, device: DeviceRecord) -> None:
    """Where a slot and memory are free and nobody else waits, every instance that has work computes."""
    if device.short or device.runs >= device.limits.run_slots or len(device.ready) != 1:
        return
    key = device.ready.first
    assert isinstance(key, ModelKey)
    model, place = scheduler.state.models[key], device.ready.first_place
    if model.runs and place is not None:
        claim = scheduler.claim_of(model, device, place)
        room_bytes = min(device.budget.free_for(model.semaphore), model.semaphore.room_bytes)
        assert claim.needed_bytes > room_bytes, f"an instance of {key} was forgotten"


def _waits_for_itself(model: ModelRecord, claim: Claim) -> bool:
    """Whether what stands in its way is its own limit, or states of its own that are still leaving."""
    leaving = any(entry.leaving is not None for entry in model.active.values())
    return leaving or claim.needed_bytes > model.semaphore.room_bytes


def _slot_is_spoken_for(device: DeviceRecord, claim: Claim) -> bool:
    """Whether the last slot is left to higher priority, whose memory is on its way."""
    higher = [key for key, other in device.short.items() if other.priority < claim.priority and key in device.ready]
    return bool(higher) and device.budget.leaving_bytes > 0 and device.runs + 1 >= device.limits.run_slots


def _kept_for_ready(device: DeviceRecord, claim: Claim) -> bool:
    place = device.ready.first_place
    return place is not None and place <= claim.place


def _only_higher_preempts(state: State, was: Before) -> None:
    """Whoever was made to give way did so for somebody of strictly higher priority who waits, because others took the
    memory or states outgrew it, or where nothing ran that could have freed anything."""
    for request_id, entry in state.entries.items():
        if entry.preemptions <= was.preemptions.get(
            request_id, 0 if entry.request.piece is None else entry.preemptions
        ):
            continue  # A piece begins with those of what it was cut from.
        model = state.models[entry.request.model]
        if model.device is None:
            continue
        device = state.devices[model.device]
        waiting = [other.priority for key in device.models for other in state.models[key].queue]
        waiting += [state.models[key].share.priority for key in device.arriving if isinstance(key, ModelKey)]
        waiting += [state.holds[key].priority for key in device.arriving if isinstance(key, HoldKey)]
        waiting += [claim.priority for claim in device.short.values()]  # for the next step of who goes on, too
        starting = [other.priority for run in state.runs.values() for other in run.entries]
        budget = device.budget
        overdrawn = budget.capacity_bytes < budget.configured_bytes or budget.overdrawn_bytes > 0
        higher = any(priority < entry.priority for priority in waiting + starting)
        goes_on = any(run.workspace.device == device.name for run in state.runs.values() if run.run_id in was.runs)
        assert higher or overdrawn or not goes_on or _outgrew(device, model), f"{entry} gave way for nobody"


def _outgrew(device: DeviceRecord, model: ModelRecord) -> bool:
    room_bytes = min(device.budget.free_for(model.semaphore), model.semaphore.room_bytes)
    return any(next_step_bytes(model, entry) > room_bytes for entry in going(model))


def check_turns(scheduler: Scheduler, began: list[int], was: Before, now: float) -> None:
    """Nobody took memory that a blocked one with a better place needs. began: runs that the event began."""
    state = scheduler.state
    for device in state.devices.values():
        claims = waiting_claims(scheduler, device, without_slot=True)
        runs = [state.runs[run_id] for run_id in began if state.runs[run_id].workspace.device == device.name]
        if not claims or not runs:
            continue
        place, claim, model = claims[0]
        if claim.waiter not in was.short:
            continue  # So far it lacked only a slot.
        if model is not None and model.state is ModelState.RESIDENT and _waits_for_itself(model, claim):
            continue
        for run in runs:
            if state.models[run.key].closing:
                continue  # It may be what the blocked one waits for: it goes for good when its work is done.
            joined = [entry for entry in run.entries if entry.request.request_id not in was.going]
            took = run.workspace.size_bytes + sum(entry.state.size_bytes for entry in joined if entry.state)
            took -= was.first_runs.get(run.key, 0)
            later = bool(joined) and min(entry.place for entry in joined) > place
            # Age gives nobody a right against higher priority: that may go on, where it is what the claim waits for.
            later = later and min(entry.priority for entry in joined) >= claim.priority
            if later and took > 0 and scheduler.room.free_bytes(device, claim) < claim.needed_bytes:
                missing_bytes = scheduler.room.missing_bytes(device, claim)
                can_go = missing_bytes <= 0 or scheduler.room.victims(device, claim, missing_bytes, now) is not None
                assert can_go, f"{run} went before {claim}, which lacks {missing_bytes}"
