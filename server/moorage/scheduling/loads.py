"""Models coming into memory and leaving it. Every byte is leased before a worker is told to take it."""

from moorage.domain.errors import LoadFailed, MemoryExhausted, ModelNotReady, ModelTooLarge, MoorageError, WorkerLost
from moorage.domain.model import ModelKey, ModelState
from moorage.scheduling.actions import KillWorker, Load, LoadSettled, Unload, UnloadSettled
from moorage.scheduling.budget import DeviceBudget, LeaseKind
from moorage.scheduling.placement import choose_device, expected_weights_bytes
from moorage.scheduling.requests import Requests
from moorage.scheduling.state import ModelRecord, State, WorkerState
from moorage.scheduling.timers import LoadDue
from moorage.scheduling.workers import Workers


class Loads:
    """Decides about residency."""

    def __init__(self, state: State, requests: Requests, workers: Workers) -> None:
        self._state = state
        self._requests = requests
        self._workers = workers

    def request(self, key: ModelKey, now: float) -> None:
        """Begin to load a model, unless it is there or on its way. A load that can never fit is refused at once."""
        model = self._state.models[key]
        model.wanted = True
        if model.state is ModelState.RESIDENT and not model.closing:
            self._settle(model, None)
            return
        if model.closing:
            self._settle(model, ModelNotReady(key.name, "unloading"))
            return
        if model.state is ModelState.LOADING:
            return
        model.load_crashes = 0
        model.failure = None
        self._state.move(model, ModelState.LOADING, "waiting to load")
        self.enqueue(model, now)
        self.pump(now)

    def enqueue(self, model: ModelRecord, now: float) -> None:
        """Put a model in LOADING in line. Its time limit counts from here, the wait included."""
        model.load_deadline_s = now + model.spec.load_timeout_s
        self._state.pending_loads[model.key] = None
        self._state.timers.add(model.load_deadline_s, LoadDue(model.key))

    def pump(self, now: float) -> None:
        """Take every waiting load as far as it goes now, in order; one short of memory stops those behind it."""
        blocked: set[str] = set()
        for key in list(self._state.pending_loads):
            if key not in self._state.pending_loads:
                continue
            model = self._state.models[key]
            budget = self._place(model)
            if budget is None:
                del self._state.pending_loads[key]
            elif budget.device not in blocked and not self._advance(model, budget):
                blocked.add(budget.device)

    def _place(self, model: ModelRecord) -> DeviceBudget | None:
        """The model's device, chosen once; None, and the load failed, where no device can ever hold it."""
        state = self._state
        if model.device is not None:
            return state.budgets[model.device]
        budget = choose_device(model.spec, state.budgets.values())
        if budget is None:
            allowed = ", ".join(model.spec.devices)
            self.give_up(
                model, LoadFailed(model.key.name, f"no device of this server matches placement.devices = {allowed}")
            )
            return None
        context_bytes = state.devices[budget.device].context_bytes
        needed_bytes = expected_weights_bytes(model.spec) + model.spec.memory.workspace_bytes(1) + context_bytes
        if needed_bytes > budget.capacity_bytes:
            self.give_up(model, _too_large(model, budget, needed_bytes))
            return None
        model.device = budget.device
        return budget

    def _advance(self, model: ModelRecord, budget: DeviceBudget) -> bool:
        """Lease, then start the worker, then have it build the model. False where memory is what it waits for."""
        if not self._lease_weights(model, budget):
            if self._something_moves(budget):
                return False
            del self._state.pending_loads[model.key]
            self.give_up(model, _no_memory(model, budget))
            return True
        worker = self._workers.ready_for(model)
        if worker is None:
            return self._workers.can_start(model)
        if worker.loading is None:
            worker.loading = model.key
            del self._state.pending_loads[model.key]
            self._state.move(model, ModelState.LOADING, "loading")
            self._state.actions.append(Load(model.key, model.spec, worker.worker))
        return True

    def _lease_weights(self, model: ModelRecord, budget: DeviceBudget) -> bool:
        if model.weights is None:
            model.weights = budget.acquire(str(model.key), LeaseKind.WEIGHTS, expected_weights_bytes(model.spec))
        return model.weights is not None

    def _something_moves(self, budget: DeviceBudget) -> bool:
        """Whether memory of the device will come free without anybody asking: runs end, models and workers go."""
        return any(
            model.device == budget.device
            and (model.run is not None or model.closing or model.state is ModelState.UNLOADING)
            for model in self._state.models.values()
        ) or any(
            worker.device == budget.device and worker.state is WorkerState.STOPPING
            for worker in self._state.workers.values()
        )

    def loaded(self, key: ModelKey, weights_bytes: int, now: float) -> None:
        """A worker built the model. What it measured corrects the ledger, and decides whether it may stay."""
        model = self._built(key)
        if model is None or model.weights is None or model.device is None:
            return
        model.load_crashes = 0
        budget = self._state.budgets[model.device]
        held_bytes = max(weights_bytes, model.spec.memory.weights_bytes or 0)
        if budget.resize(model.weights, held_bytes):
            self._state.move(model, ModelState.RESIDENT)
            self._requests.refuse_what_never_fits(model)
            self._settle(model, None)
            self._requests.start_next(model, now)
            self.close_if_idle(model, now)
        else:
            # It is there already, so the ledger was wrong for a moment: out with it at once.
            free_bytes = budget.free_bytes + model.weights.size_bytes
            model.failure = MemoryExhausted(
                f"model '{key.name}', as measured,",
                device=budget.device,
                needed_bytes=held_bytes,
                free_bytes=free_bytes,
            )
            self._settle(model, model.failure)
            self._requests.fail_waiting(model, model.failure)
            self._send_away(model)
        self.pump(now)

    def load_failed(self, key: ModelKey, error: MoorageError, now: float) -> None:
        """A worker could not build the model and has freed what it took."""
        model = self._built(key)
        if model is not None:
            self.give_up(model, error)
            self.close_if_idle(model, now)
        self.memory_freed(now)

    def _built(self, key: ModelKey) -> ModelRecord | None:
        """The model whose building has just ended, its worker free for the next; None if nobody asked any more."""
        model = self._state.models.get(key)
        if model is None or model.worker is None or model.state is not ModelState.LOADING:
            return None
        worker = self._state.workers.get(model.worker)
        if worker is None or worker.loading != key:
            return None
        worker.loading = None
        return model

    def give_up(self, model: ModelRecord, error: MoorageError) -> None:
        """End a load, and all that waited for it, with an error. Want of memory is no fault of the model's."""
        transient = isinstance(error, MemoryExhausted)
        self.drop_lease(model)
        self._workers.leave(model)
        self._state.move(model, ModelState.UNLOADED if transient else ModelState.FAILED, error.message)
        model.device = None
        self._settle(model, error)
        self._requests.fail_waiting(model, error)

    def overdue(self, key: ModelKey, now: float) -> None:
        """A load has taken its whole time. A worker that is still building can only be stopped by killing it."""
        model = self._state.models.get(key)
        if model is None or model.state is not ModelState.LOADING or now < model.load_deadline_s:
            return
        error = LoadFailed(key.name, f"not loaded within {model.spec.load_timeout_s:g} s")
        worker = self._state.workers.get(model.worker or "")
        self._state.pending_loads.pop(key, None)
        if worker is not None and worker.loading == key:
            # Its memory is free only when the process is gone: the load is given up when that is known.
            model.failure = error
            self._state.actions.append(KillWorker(worker.worker, f"loading {key} took too long"))
            return
        self.give_up(model, error)
        self.close_if_idle(model, now)
        self.memory_freed(now)

    def unload(self, key: ModelKey, now: float) -> None:
        """Refuse new work, and go once what was accepted is done. A load that has not begun is called off."""
        model = self._state.models.get(key)
        if model is None:
            self._state.actions.append(UnloadSettled(key))
            return
        model.closing = True
        if key in self._state.pending_loads:
            del self._state.pending_loads[key]
            self.give_up(model, ModelNotReady(key.name, "unloaded while it waited to load"))
        self.close_if_idle(model, now)

    def close_if_idle(self, model: ModelRecord, now: float) -> None:
        """Take a closing model out of memory when nothing of it runs or waits."""
        if not model.closing:
            return
        if model.state in {ModelState.UNLOADED, ModelState.FAILED}:
            self._forget(model, now)
        elif model.state is ModelState.RESIDENT and model.run is None and not model.queue:
            self._send_away(model)

    def _send_away(self, model: ModelRecord) -> None:
        assert model.worker is not None
        self._state.move(model, ModelState.UNLOADING)
        self._state.actions.append(Unload(model.key, model.worker))

    def unloaded(self, key: ModelKey, now: float) -> None:
        """The worker confirmed: only now are the bytes free."""
        model = self._state.models.get(key)
        if model is None or model.state is not ModelState.UNLOADING:
            return
        self._gone(model, now)

    def _gone(self, model: ModelRecord, now: float) -> None:
        """The model's memory is free. It is forgotten if that was wanted, and kept with its reason if it failed."""
        self.drop_lease(model)
        self._workers.leave(model)
        if model.closing:
            self._state.move(model, ModelState.UNLOADED)
            self._forget(model, now)
            return
        reason = model.failure.message if model.failure else ""
        self._state.move(model, ModelState.FAILED, reason)
        model.device = None
        self.memory_freed(now)

    def worker_died(self, model: ModelRecord, reason: str, *, culprit: bool, now: float) -> None:
        """The model's process is gone, and its memory with it. The model comes back by itself, unless it was leaving
        or is what kills the process; the caller has dealt with its run."""
        self.drop_lease(model)
        if model.state is ModelState.UNLOADING:
            self._gone(model, now)
            return
        model.load_crashes += culprit
        if model.load_crashes >= self._state.limits.max_load_crashes:
            model.failure = LoadFailed(model.key.name, f"its worker died while loading it: {reason}")
        if model.closing:
            self._requests.fail_waiting(model, WorkerLost(reason))
            self._state.pending_loads.pop(model.key, None)
            self._state.move(model, ModelState.UNLOADED)
            self._settle(model, WorkerLost(reason))
            self._workers.leave(model)
            self._forget(model, now)
        elif model.failure is not None:
            self._state.pending_loads.pop(model.key, None)
            self.give_up(model, model.failure)
        else:
            self._state.move(model, ModelState.LOADING, f"its worker was lost: {reason}")
            self.enqueue(model, now)

    def _forget(self, model: ModelRecord, now: float) -> None:
        del self._state.models[model.key]
        self._state.actions.append(UnloadSettled(model.key))
        self.memory_freed(now)

    def memory_freed(self, now: float) -> None:
        """Give what came free to those who wait for it: runs first, as a load must not hold up what is resident."""
        for device in self._state.budgets:
            self._requests.start_waiting(device, now)
        if self._state.pending_loads:
            self.pump(now)

    def drop_lease(self, model: ModelRecord) -> None:
        if model.weights is not None:
            self._state.budgets[model.weights.device].release(model.weights)
            model.weights = None

    def _settle(self, model: ModelRecord, error: MoorageError | None) -> None:
        if model.wanted:
            model.wanted = False
            self._state.actions.append(LoadSettled(model.key, error))


def _too_large(model: ModelRecord, budget: DeviceBudget, needed_bytes: int) -> ModelTooLarge:
    return ModelTooLarge(
        f"model '{model.key.name}'",
        device=budget.device,
        needed_bytes=needed_bytes,
        capacity_bytes=budget.capacity_bytes,
    )


def _no_memory(model: ModelRecord, budget: DeviceBudget) -> MemoryExhausted:
    return MemoryExhausted(
        f"model '{model.key.name}'",
        device=budget.device,
        needed_bytes=expected_weights_bytes(model.spec),
        free_bytes=budget.free_bytes,
    )
