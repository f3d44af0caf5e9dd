"""What must be true of the state after every event. For tests, and for a running server when it is idle."""

from collections import Counter

from moorage.domain.model import ModelState
from moorage.scheduling.budget import DeviceBudget, Lease
from moorage.scheduling.entries import Entry
from moorage.scheduling.records import ModelRecord, WorkerState
from moorage.scheduling.state import DeviceRecord, State
from moorage.scheduling.timers import RunDue

PLACED = set(ModelState) - {ModelState.UNLOADED, ModelState.FAILED}
ON_THE_DEVICE = PLACED - {ModelState.OFFLOADED}
MUST_HAVE_WEIGHTS = {ModelState.RESIDENT, ModelState.OFFLOADING, ModelState.RESTORING}


def check(state: State) -> None:
    """Recompute everything that is kept twice. Raises AssertionError where it has drifted."""
    for device in state.devices.values():
        _check_device(state, device)
    for model in state.models.values():
        model.queue.check_integrity()
        _check_model(state, model)
    assert state.waiting.rows == sum(model.queue.rows for model in state.models.values())
    assert state.waiting.size_bytes == sum(model.queue.size_bytes for model in state.models.values())
    _check_workers(state)
    _check_leases(state)
    _check_requests(state)


def _check_device(state: State, device: DeviceRecord) -> None:
    device.budget.check_integrity()
    device.host.check_integrity()
    assert device.host.overdrawn_bytes == 0 or any(model.stepped for model in device.models.values())
    assert device.models == {key: model for key, model in state.models.items() if model.device == device.name}
    runs = [run for run in state.runs.values() if run.workspace.device == device.name]
    assert device.runs == len(runs) <= device.limits.run_slots, f"{device.name}: {device.runs} runs, {len(runs)} known"
    for waiter in (*device.ready, *device.arriving):
        assert waiter in device.models or waiter in state.holds, f"{waiter} waits on {device.name} and is not there"


def _check_leases(state: State) -> None:
    """Every lease has one live owner."""
    owned: list[Lease | None] = [worker.context for worker in state.workers.values()]
    owned += [lease for worker in state.workers.values() for lease in worker.retained.values()]
    owned += [run.workspace for run in state.runs.values()]
    owned += [hold.lease for hold in state.holds.values()]
    owned += [lease for model in state.models.values() for lease in (model.weights, model.first_run)]
    owned += [entry.state for model in state.models.values() for entry in model.active.values()]
    _same(owned, [device.budget for device in state.devices.values()])
    hosted: list[Lease | None] = [model.host for model in state.models.values()]
    hosted += [entry.host for model in state.models.values() for entry in model.entries]
    _same(hosted, [device.host for device in state.devices.values()])


def _same(owned: list[Lease | None], budgets: list[DeviceBudget]) -> None:
    live = Counter(lease for lease in owned if lease is not None)
    held = Counter(lease for budget in budgets for lease in budget.leases)
    assert live == held, f"{live} owned, {held} held"


def _check_model(state: State, model: ModelRecord) -> None:
    key = model.key
    assert (model.state in PLACED) == (model.device is not None), f"{key}: {model.state} on {model.device}"
    assert model.state in ON_THE_DEVICE or not model.runs, f"{key}: {model.state} and runs"
    assert model.state in PLACED or not (model.weights or model.worker or model.host), f"{key}: {model.state} holds"
    assert model.state in PLACED or not model.queue, f"{key}: nobody serves its queue"
    assert model.state not in MUST_HAVE_WEIGHTS or model.weights is not None, f"{key}: {model.state} without weights"
    assert not model.runs or model.state is ModelState.RESIDENT, f"{key}: runs while {model.state}"
    assert model.runs == [run for run in state.runs.values() if run.key == key]
    assert len({run.instance for run in model.runs}) == len(model.runs), f"{key}: two runs in one instance"
    assert all(run.instance < model.spec.instances for run in model.runs)
    assert len(model.runs) <= 1 or all(run.step is None for run in model.runs), f"{key}: two steps at once"
    assert model.closing == (key in state.closing)
    assert not model.behind or key in state.awaiting
    assert all(state.models[understudy].understudy_of == key for understudy in model.understudies.values())
    assert model.understudy_of is None or key in state.models[model.understudy_of].understudies.values()
    assert key not in state.building or (model.state is ModelState.LOADING and model.weights is not None)
    assert not model.evicted or model.state in {ModelState.UNLOADING, ModelState.OFFLOADING}, f"{key}: {model.state}"
    leases = [model.weights, model.first_run, *(run.workspace for run in model.runs)]
    leases += [entry.state for entry in model.active.values()]
    assert model.semaphore.held_bytes == sum(lease.size_bytes for lease in leases if lease is not None)


def _check_workers(state: State) -> None:
    for worker in state.workers.values():
        assert worker.context is not None or worker.state is WorkerState.DOWN, f"{worker.worker}: {worker.state}"
        assert worker.loading is None or state.models[worker.loading].state is ModelState.LOADING
        living = {key for key, model in state.models.items() if model.worker == worker.worker}
        assert living == set(worker.models), f"{worker.worker}: {worker.models}, but {living} live in it"


def _check_requests(state: State) -> None:
    """Every accepted request waits in one queue, runs between steps, or is in one run."""
    for model in state.models.values():
        assert all(entry.request.model == model.key for entry in model.queue), f"{model.key}: others in its queue"
    queued = [entry for model in state.models.values() for entry in model.queue]
    active = [entry for model in state.models.values() for entry in model.active.values()]
    parked = [entry for model in state.models.values() for entry in model.parked.values()]
    running = [entry for run in state.runs.values() if run.step is None for entry in run.entries]
    places = Counter(entry.request.request_id for entry in queued + active + parked + running)
    assert all(count == 1 for count in places.values()), f"in two places: {places}"
    assert all(state.is_open(entry) and entry.state is None and entry.leaving is None for entry in queued + parked)
    assert all(entry.paused for entry in parked)
    assert not any(entry.paused for entry in queued + running), "its caller does not read"
    assert all(len(set(entry.tried)) == len(entry.tried) for entry in queued), "it was tried there before"
    assert set(state.entries) <= set(places), f"lost: {set(state.entries) - set(places)}"
    _check_states(state, active)
    _check_pieces(state)
    _check_forsaken(state)


def _check_forsaken(state: State) -> None:
    """A run that nobody waits for any more has an end, and its process, if need be, with it."""
    for run in state.runs.values():
        if not any(map(state.is_open, run.entries)) and state.workers[run.worker].state is WorkerState.UP:
            ends = any(isinstance(due, RunDue) and due.run_id == run.run_id for due in state.timers)
            assert ends, f"nobody waits for run {run.run_id} of {run.key}, for ever"


def _check_pieces(state: State) -> None:
    """Every accepted piece is known to belong to its request, which is not accepted itself, and has no others."""
    pieces = {request_id: entry for known in state.split.values() for request_id, entry in known.items()}
    assert pieces == {it: entry for it, entry in state.entries.items() if entry.request.piece is not None}
    assert all(state.split.values()), "a split request without pieces"
    assert not set(state.split) & set(state.entries)


def _check_states(state: State, active: list[Entry]) -> None:
    for entry in active:
        assert entry.leaving is not None or (entry.state is not None and state.is_open(entry)), f"{entry} is nowhere"
        assert entry.leaving is None or entry.state is None or entry.state.leaving, f"{entry} does not leave"
