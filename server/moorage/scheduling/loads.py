"""Models coming into memory. Every byte is leased before a worker is told to take it."""

from moorage.domain.errors import LoadFailed, ModelNotFound, ModelNotReady, MoorageError
from moorage.domain.model import ModelKey, ModelState
from moorage.scheduling.actions import LoadSettled, Restore
from moorage.scheduling.budget import LeaseKind, Want, acquire_all
from moorage.scheduling.claims import Claim
from moorage.scheduling.departures import Departures
from moorage.scheduling.placement import (
    candidates,
    expected_weights_bytes,
    first_run_bytes,
    largest_device,
    least_bytes,
    warmup_bytes,
    within_limit,
)
from moorage.scheduling.records import ModelRecord, begin_with_profile
from moorage.scheduling.requests import Requests
from moorage.scheduling.room import Room
from moorage.scheduling.state import DeviceRecord, State
from moorage.scheduling.timers import LoadDue
from moorage.scheduling.workers import Workers


class Loads:
    """Decides about ways in, from disk and from the host."""

    def __init__(self, state: State, requests: Requests, workers: Workers, departures: Departures, room: Room) -> None:
        self._state = state
        self._requests = requests
        self._workers = workers
        self._departures = departures
        self._room = room

    def request(self, key: ModelKey, now: float, *, may_evict: bool = True) -> None:
        """Begin to bring a model in, unless it is there or on its way. One that can never fit is refused at once."""
        model = self._state.models.get(key)
        if model is None:
            self._state.actions.append(LoadSettled(key, ModelNotFound(key.name, str(key.version))))
            return
        model.wanted = True
        model.may_evict = may_evict
        model.asked_s = now
        self._state.touch(model)
        if model.closing:
            self._departures.settle(model, ModelNotReady(key.name, "unloading"))
        elif model.state is ModelState.RESIDENT:
            self._departures.settle(model, None)
        elif model.quarantined_in is not None:
            self._departures.settle(model, ModelNotReady(key.name, model.reason))
        elif model.state is ModelState.FAILED and now < model.retry_at_s:
            reason = f"its load failed {model.load_failures} times in a row, {model.reason}"
            error = ModelNotReady(key.name, reason, retry_after_s=model.retry_at_s - now)
            self._departures.settle(model, error)
        elif model.state in {ModelState.UNLOADED, ModelState.FAILED}:
            self.begin(model, now)
        elif model.weights is None or model.state is not ModelState.LOADING:
            self.set_deadline(model, now)

    def begin(self, model: ModelRecord, now: float) -> None:
        """Place a model and have it wait for its memory."""
        model.load_crashes = 0
        model.cold = False
        model.failure = None
        model.asked_s = now
        self._state.move(model, ModelState.LOADING, "waiting for memory")
        error = self._place(model, now)
        if error is not None:
            self._departures.give_up(model, error)
        elif model.wanted:
            self.set_deadline(model, now)

    def _place(self, model: ModelRecord, now: float) -> MoorageError | None:
        """Choose the model's device; the error where no device can ever hold it."""
        devices = candidates(model, self._state.devices)
        if not devices:
            return self._never(model)
        device = devices[0]
        if len(devices) > 1 and self._short(model, device) > 0:
            device = min(devices, key=lambda device: (self._cost(model, device, now), device.name))
        model.device = device.name
        device.models[model.key] = model
        begin_with_profile(model, device.name)
        return None

    def _never(self, model: ModelRecord) -> MoorageError:
        largest = largest_device(model.spec, self._state.devices)
        if largest is None:
            allowed = ", ".join(model.spec.devices)
            return LoadFailed(model.key.name, f"no device of this server matches placement.devices = {allowed}")
        return largest.budget.too_large(f"model '{model.key.name}'", least_bytes(model, largest))

    def _short(self, model: ModelRecord, device: DeviceRecord) -> int:
        return self._room.missing_bytes(device, self.claim(model, device, 0.0))

    def _cost(self, model: ModelRecord, device: DeviceRecord, now: float) -> float:
        """What it would cost others to have the model here."""
        claim = self.claim(model, device, now)
        missing_bytes = self._room.missing_bytes(device, claim)
        if missing_bytes <= 0:
            return 0.0
        return self._room.cost(device, claim, missing_bytes, now)

    def set_deadline(self, model: ModelRecord, start_s: float) -> None:
        """Give a load its time. Whoever asked for it waits no longer for memory; and then the worker has as long.

        Requests have deadlines of their own: no model fails because memory was held by others while they waited.
        """
        model.load_deadline_s = start_s + model.spec.load_timeout_s
        self._state.timers.add(model.load_deadline_s, LoadDue(model.key))

    def needed_bytes(
        self, model: ModelRecord, device: DeviceRecord, rows: int | None = None, *, cold: bool = False
    ) -> int:
        """What bringing the model in takes, with its warm-up, and the first run of whoever waits, or of so many rows.

        cold: without its warm-up.
        """
        held_bytes = model.weights.size_bytes if model.weights is not None and not model.weights.leaving else 0
        weights_bytes = expected_weights_bytes(model) - held_bytes
        in_all = weights_bytes + self._runs_bytes(model, rows, cold=cold)
        if model.semaphore not in device.budget.shares:
            in_all = max(in_all, model.semaphore.reserved_bytes)
        return in_all + self._workers.missing_context_bytes(model, device.name)

    def _runs_bytes(self, model: ModelRecord, rows: int | None = None, *, cold: bool = False) -> int:
        """What is leased with the weights: one run at a time, in the warm-up and after it."""
        first_bytes = first_run_bytes(model, rows)
        # Whose weights come back from the host was warm before.
        if cold or model.cold or model.state is ModelState.OFFLOADED:
            return first_bytes
        return max(first_bytes, within_limit(model, warmup_bytes(model)))

    def claim(self, model: ModelRecord, device: DeviceRecord, place: float) -> Claim:
        """What the model needs to come in."""
        waiting = model.queue.best_priority
        priority = model.share.priority if waiting is None else waiting
        if model.wanted:
            priority = min(priority, model.share.priority)
        share = model.semaphore if model.semaphore in device.budget.shares else None
        return Claim(model.key, place, priority, self.needed_bytes(model, device), share, model.key)

    def bring_in(self, model: ModelRecord, device: DeviceRecord, room_bytes: float, now: float) -> bool:
        """Lease all that the model needs, and have it come; False if it does not fit the room."""
        if self.needed_bytes(model, device) > room_bytes:
            return False
        worker = self._workers.of(model, device.name)
        runs_bytes = self._runs_bytes(model)
        weights_bytes = expected_weights_bytes(model)
        budget, owner, share = device.budget, str(model.key), model.semaphore
        if model.weights is not None:
            device.budget.correct(model.weights, weights_bytes)
        wants = [Want(budget, owner, LeaseKind.WEIGHTS, weights_bytes, share)] if model.weights is None else []
        if runs_bytes:
            wants.append(Want(budget, owner, LeaseKind.WORKSPACE, runs_bytes, share))
        if worker.context is None:
            wants.append(self._workers.want_context(worker))
        else:
            device.budget.stay(worker.context)
        leases = acquire_all(wants)
        assert leases is not None, f"{model.key}: no room for {wants}"
        for lease in leases:
            if lease.kind is LeaseKind.WEIGHTS:
                model.weights = lease
            elif lease.kind is LeaseKind.WORKSPACE:
                model.first_run = lease
            else:
                worker.context = lease
        if share not in device.budget.shares:
            device.budget.join(share)
        self._come(model, now)
        return True

    def _come(self, model: ModelRecord, now: float) -> None:
        """The memory is there: from the host, or from disk as soon as the worker is free to build it."""
        assert model.worker is not None
        model.way_began_s = now
        if model.state is ModelState.OFFLOADED:
            self._state.move(model, ModelState.RESTORING)
            self._departures.set_deadline(model, now)
            self._state.actions.append(Restore(model.key, model.worker))
        else:
            self._state.move(model, ModelState.LOADING, "waiting for its worker")
            self.set_deadline(model, now)
            self._state.building[model.key] = None

    def forgo_warmup(self, model: ModelRecord) -> bool:
        """Have a model come without its warm-up, where that is what it can't be had with; False if it is not.

        A first request that is slow is better than none.
        """
        if model.cold or model.state is ModelState.OFFLOADED or not warmup_bytes(model):
            return False
        model.cold = True
        return True

    def refuse(self, model: ModelRecord, device: DeviceRecord, claim: Claim, now: float) -> None:
        """It can't be had beside what stays: tell those who wait, unless it may come for half of the first's rows."""
        head = model.queue.head
        if head is not None and self._requests.split(model, head, head.request.rows // 2):
            return
        error = self._room.refusal(device, claim, f"model '{model.key.name}'")
        self._requests.send_elsewhere(model, now)
        if model.state is ModelState.LOADING:
            self._departures.give_up(model, error)
        else:
            self._departures.settle(model, error)
            self._requests.fail_waiting(model, error)

    def stand_by(self, model: ModelRecord) -> None:
        """There is no room without putting somebody out: the model's first request brings it in."""
        model.in_service = True
        if model.state is ModelState.LOADING:
            self._departures.out(model, ModelState.UNLOADED, "waiting for its first request: memory is held by others")
        self._departures.settle(model, None)

    def _out_of_time(self, model: ModelRecord) -> None:
        """Whoever asked for a load waited long enough for its memory. Requests that wait too may go on waiting."""
        device = self._state.device_of(model)
        needed_bytes = self.needed_bytes(model, device)
        error = device.budget.exhausted(f"model '{model.key.name}'", needed_bytes, device.budget.free_bytes)
        self._departures.settle(model, error)
        self._state.touch(model)

    def overdue(self, key: ModelKey, now: float) -> None:
        """A load has taken its whole time. A worker that is still building can only be stopped by killing it."""
        model = self._state.models.get(key)
        if model is None or now < model.load_deadline_s or model.failure is not None:
            return
        error = LoadFailed(key.name, f"not loaded within {model.spec.load_timeout_s:g} s")
        worker = self._state.worker_of(model)
        if model.state is ModelState.OFFLOADED or (model.state is ModelState.LOADING and model.weights is None):
            self._out_of_time(model)
        elif model.state is not ModelState.LOADING:
            self._departures.settle(model, error)
        elif worker is not None and worker.loading == key:
            # Its memory is free only when the process is gone: the load is given up when that is known.
            model.failure = error
            self._workers.kill(worker, f"loading {key} took too long")
        else:
            self._departures.give_up(model, error)
