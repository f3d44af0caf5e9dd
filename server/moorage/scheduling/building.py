"""Models that have their memory: built by their worker or brought back by it, and then in service, or not after all."""

from dataclasses import replace

from moorage.domain.errors import MoorageError
from moorage.domain.model import ModelKey, ModelState
from moorage.scheduling.actions import Load
from moorage.scheduling.budget import LeaseKind
from moorage.scheduling.claims import Claim
from moorage.scheduling.departures import Departures
from moorage.scheduling.placement import first_run_bytes, warmup_bytes
from moorage.scheduling.records import ModelRecord, WorkerState
from moorage.scheduling.recovery import restart_delay_s
from moorage.scheduling.requests import Requests
from moorage.scheduling.room import Room
from moorage.scheduling.state import DeviceRecord, State
from moorage.scheduling.workers import Workers

_COLD = "loading without its warm-up, for which there is no memory"


class Building:
    """Decides about the last part of the way in. A worker builds one model at a time."""

    def __init__(self, state: State, requests: Requests, workers: Workers, departures: Departures, room: Room) -> None:
        self._state = state
        self._requests = requests
        self._workers = workers
        self._departures = departures
        self._room = room

    def build_next(self, device: str, now: float) -> None:
        """Have free workers build what has its memory. Start those that do not run."""
        for key in tuple(self._state.building):
            model = self._state.models[key]
            if model.device != device:
                continue
            worker = self._workers.of(model, device)
            self._workers.ensure_started(worker)
            if worker.state is WorkerState.UP and worker.loading is None:
                worker.loading = key
                del self._state.building[key]
                model.way_began_s = now
                if model.spec.warmup and not model.cold:
                    model.cold = not self._lease_warmup(model)
                self._state.move(model, ModelState.LOADING, "loading" if not model.cold else _COLD)
                spec = replace(model.spec, warmup=()) if model.cold else model.spec
                self._state.actions.append(Load(key, spec, worker.worker))

    def _lease_warmup(self, model: ModelRecord) -> bool:
        """Whether what a model's warm-up takes is leased, or could be now.

        It was together with the weights. But where a worker died only their place was kept, and others may have had
        what it takes to run: for them it is built without its warm-up.
        """
        held_bytes = model.first_run.size_bytes if model.first_run is not None else 0
        missing_bytes = warmup_bytes(model) - held_bytes
        if missing_bytes <= 0:
            return True
        device = self._state.device_of(model)
        claim = Claim(model.key, float("inf"), model.share.priority, missing_bytes, model.semaphore, model.key)
        if missing_bytes > min(self._room.free_bytes(device, claim), model.semaphore.room_bytes):
            return False
        if model.first_run is not None:
            device.budget.correct(model.first_run, held_bytes + missing_bytes)
        else:
            model.first_run = device.budget.acquire(
                model.semaphore.owner, LeaseKind.WORKSPACE, missing_bytes, model.semaphore
            )
        return True

    def loaded(self, key: ModelKey, weights_bytes: int, load_s: float, now: float) -> ModelRecord | None:
        """A worker built the model. What it measured corrects the ledger, and decides whether it may stay."""
        model = self._built(key)
        if model is None:
            return None
        assert model.weights is not None
        model.load_crashes = model.load_failures = 0
        model.counts.loads += 1
        model.measured.load_s = load_s
        model.measured.device = model.device
        device = self._state.device_of(model)
        self._end_warmup(model, device)
        held_bytes = max(weights_bytes, model.spec.memory.weights_bytes or 0)
        model.measured.weights_bytes = weights_bytes
        if device.budget.resize(model.weights, held_bytes):
            self._arrive(model, load_s, now)
            self._requests.refuse_what_never_fits(model)
        else:
            self._too_large(model, device, held_bytes, now)
        return model

    def _end_warmup(self, model: ModelRecord, device: DeviceRecord) -> None:
        """Keep what the first run of whoever waits takes. What a warm-up left in the model is among its weights now."""
        if model.first_run is None or not model.spec.warmup:
            return
        kept_bytes = min(first_run_bytes(model), model.first_run.size_bytes)
        if kept_bytes:
            device.budget.correct(model.first_run, kept_bytes)
        else:
            self._state.end_first_run(model)

    def _arrive(self, model: ModelRecord, took_s: float, now: float) -> None:
        model.came_s = now
        model.way_in_s = took_s
        model.in_service = True
        device = self._state.device_of(model)
        if device.short:
            self._state.stir(device.name)  # whoever is of higher priority may put it out from now on
        self._state.move(model, ModelState.RESIDENT)
        self._departures.settle(model, None)

    def _too_large(self, model: ModelRecord, device: DeviceRecord, held_bytes: int, now: float) -> None:
        """It is there already, so the ledger was wrong for a moment: out with it at once.

        Where there is room for what it really takes, once others have gone, it is loaded again, knowing that now.
        """
        assert model.weights is not None
        missing_bytes = held_bytes - model.weights.size_bytes
        device.budget.correct(model.weights, held_bytes)
        claim = Claim(model.key, float("inf"), model.share.priority, missing_bytes, model.semaphore, model.key)
        if self._room.obtainable_bytes(device, claim) < 0:
            free_bytes = held_bytes - missing_bytes + device.budget.free_bytes
            model.failure = device.budget.exhausted(f"model '{model.key.name}', as measured,", held_bytes, free_bytes)
            self._departures.settle(model, model.failure)
            self._requests.fail_waiting(model, model.failure)
        model.evicted = model.failure is None
        model.in_service = model.failure is None
        self._departures.send_away(model, now)

    def failed(self, key: ModelKey, error: MoorageError, now: float) -> None:
        """A worker could not build the model and has freed what it took. Tried again and again it has to wait."""
        model = self._built(key)
        if model is not None:
            model.load_failures += 1
            model.retry_at_s = now + restart_delay_s(model.load_failures)
            self._departures.give_up(model, error)

    def _built(self, key: ModelKey) -> ModelRecord | None:
        """The model whose building has just ended, its worker free for the next; None if that is no longer awaited.

        What a worker still says after it was killed for taking too long changes nothing.
        """
        model = self._state.models.get(key)
        worker = self._state.worker_of(model) if model else None
        if worker is None or worker.loading != key or worker.state is not WorkerState.UP:
            return None
        worker.loading = None
        self._state.stir(worker.device)
        return model

    def restored(self, key: ModelKey, restore_s: float, now: float) -> None:
        """The weights are back from the host."""
        model = self._departures.moving(key, ModelState.RESTORING)
        if model is None:
            return
        model.counts.restores += 1
        model.measured.restore_s = restore_s
        self._departures.release_host(model)
        self._arrive(model, restore_s, now)

    def restore_failed(self, key: ModelKey, now: float) -> None:
        """The host's copy is good for nothing: away with all of it, and from disk again if anybody waits."""
        model = self._departures.moving(key, ModelState.RESTORING)
        if model is not None:
            model.evicted = True
            self._departures.send_away(model, now)
