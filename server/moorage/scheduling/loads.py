"""Models coming into memory. Every byte is leased before a worker is told to take it."""

from moorage.domain.errors import LoadFailed, ModelNotFound, ModelNotReady, MoorageError
from moorage.domain.model import ModelKey, ModelState
from moorage.scheduling.actions import Load, LoadSettled
from moorage.scheduling.budget import DeviceBudget, LeaseKind
from moorage.scheduling.departures import Departures
from moorage.scheduling.outlook import something_moves
from moorage.scheduling.placement import choose_device, expected_weights_bytes, least_bytes
from moorage.scheduling.requests import Requests
from moorage.scheduling.runs import Runs
from moorage.scheduling.state import ModelRecord, State, WorkerState
from moorage.scheduling.timers import LoadDue
from moorage.scheduling.workers import Workers


class Loads:
    """Decides about ways in."""

    def __init__(self, state: State, requests: Requests, runs: Runs, workers: Workers, departures: Departures) -> None:
        self._state = state
        self._requests = requests
        self._runs = runs
        self._workers = workers
        self._departures = departures

    def request(self, key: ModelKey, now: float) -> None:
        """Begin to load a model, unless it is there or on its way. A load that can never fit is refused at once."""
        model = self._state.models.get(key)
        if model is None:
            self._state.actions.append(LoadSettled(key, ModelNotFound(key.name, str(key.version))))
            return
        model.wanted = True
        if model.closing or model.state is ModelState.UNLOADING:
            self._departures.settle(model, ModelNotReady(key.name, "unloading"))
        elif model.state is ModelState.RESIDENT:
            self._departures.settle(model, None)
        elif model.state is not ModelState.LOADING:
            self._begin(model, now)

    def _begin(self, model: ModelRecord, now: float) -> None:
        model.load_crashes = 0
        model.failure = None
        self._state.move(model, ModelState.LOADING, "waiting to load")
        error = self._place(model)
        if error is not None:
            self._departures.give_up(model, error)
            return
        self.set_deadline(model, now)
        self.line_up(model)

    def _place(self, model: ModelRecord) -> MoorageError | None:
        """Choose the model's device; the error where no device can ever hold it."""
        state = self._state
        budget = choose_device(model.spec, state.budgets, state.context_bytes)
        if budget is None:
            allowed = ", ".join(model.spec.devices)
            return LoadFailed(model.key.name, f"no device of this server matches placement.devices = {allowed}")
        needed_bytes = least_bytes(model.spec, state.context_bytes[budget.device])
        if needed_bytes > budget.capacity_bytes:
            return budget.too_large(f"model '{model.key.name}'", needed_bytes)
        model.device = budget.device
        return None

    def set_deadline(self, model: ModelRecord, start_s: float) -> None:
        """Give a load its time. The wait for memory and for the worker counts."""
        model.load_deadline_s = start_s + model.spec.load_timeout_s
        self._state.timers.add(model.load_deadline_s, LoadDue(model.key))

    def line_up(self, model: ModelRecord) -> None:
        """Put a placed model in LOADING in line."""
        assert model.device is not None
        self._state.pending_loads[model.key] = None
        self._state.stir(model.device)

    def pump(self, device: str) -> None:
        """Take the device's waiting loads as far as they go now, in order.

        One short of memory keeps those behind it from taking any, but not from coming back to what they hold.
        """
        budget = self._state.budgets[device]
        blocked = False
        for key in tuple(self._state.pending_loads):
            model = self._state.models[key]
            if model.device != device or (blocked and model.weights is None) or self._advance(model, budget):
                continue
            if something_moves(self._state, device):
                blocked = True
            else:
                self._departures.give_up(
                    model,
                    budget.exhausted(f"model '{key.name}'", expected_weights_bytes(model.spec), budget.free_bytes),
                )

    def _advance(self, model: ModelRecord, budget: DeviceBudget) -> bool:
        """Lease, then start the worker, then have it build the model. False where memory is what it waits for."""
        if model.weights is None:
            model.weights = budget.acquire(str(model.key), LeaseKind.WEIGHTS, expected_weights_bytes(model.spec))
            if model.weights is None:
                return False
        worker = self._workers.of(model, budget.device)
        if worker.state is WorkerState.UP and worker.loading is None:
            worker.loading = model.key
            del self._state.pending_loads[model.key]
            self._state.move(model, ModelState.LOADING, "loading")
            self._state.actions.append(Load(model.key, model.spec, worker.worker))
        return not worker.startable

    def loaded(self, key: ModelKey, weights_bytes: int, now: float) -> None:
        """A worker built the model. What it measured corrects the ledger, and decides whether it may stay."""
        model = self._built(key)
        if model is None:
            return
        assert model.weights is not None
        model.load_crashes = 0
        budget = self._state.budgets[model.weights.device]
        held_bytes = max(weights_bytes, model.spec.memory.weights_bytes or 0)
        if budget.resize(model.weights, held_bytes):
            self._state.move(model, ModelState.RESIDENT)
            self._requests.refuse_what_never_fits(model)
            self._departures.settle(model, None)
            self._runs.start_next(model, now)
            return
        # It is there already, so the ledger was wrong for a moment: out with it at once.
        free_bytes = budget.free_bytes + model.weights.size_bytes
        model.failure = budget.exhausted(f"model '{key.name}', as measured,", held_bytes, free_bytes)
        self._departures.settle(model, model.failure)
        self._requests.fail_waiting(model, model.failure)
        self._departures.send_away(model, now)

    def failed(self, key: ModelKey, error: MoorageError) -> None:
        """A worker could not build the model and has freed what it took."""
        model = self._built(key)
        if model is not None:
            self._departures.give_up(model, error)

    def _built(self, key: ModelKey) -> ModelRecord | None:
        """The model whose building has just ended, its worker free for the next; None if that is no longer awaited.

        What a worker still says after it was killed for taking too long changes nothing.
        """
        model = self._state.models.get(key)
        worker = self._state.workers.get(model.worker or "") if model else None
        if worker is None or worker.loading != key or worker.state is not WorkerState.UP:
            return None
        worker.loading = None
        self._state.stir(worker.device)
        return model

    def overdue(self, key: ModelKey, now: float) -> None:
        """A load has taken its whole time. A worker that is still building can only be stopped by killing it."""
        model = self._state.models.get(key)
        if model is None or model.state is not ModelState.LOADING or now < model.load_deadline_s:
            return
        if model.failure is not None:  # it was found overdue before, and its worker is being killed
            return
        error = LoadFailed(key.name, f"not loaded within {model.spec.load_timeout_s:g} s")
        worker = self._state.workers.get(model.worker or "")
        if worker is not None and worker.loading == key:
            # Its memory is free only when the process is gone: the load is given up when that is known.
            model.failure = error
            self._workers.kill(worker, f"loading {key} took too long")
        else:
            self._departures.give_up(model, error)
