"""What becomes of a worker's runs and models when its process is gone."""

from moorage.domain.errors import LoadFailed, WorkerLost
from moorage.domain.model import ModelState
from moorage.scheduling.departures import Departures
from moorage.scheduling.loads import Loads
from moorage.scheduling.recovery import UNWELL_AFTER, restart_delay_s
from moorage.scheduling.requests import Requests
from moorage.scheduling.runs import Runs
from moorage.scheduling.state import ModelRecord, State, WorkerRecord
from moorage.scheduling.workers import Workers


class Losses:
    """Decides about what was lost: requests are tried again, and models come back by themselves."""

    def __init__(
        self, state: State, requests: Requests, runs: Runs, workers: Workers, departures: Departures, loads: Loads
    ) -> None:
        self._state = state
        self._requests = requests
        self._runs = runs
        self._workers = workers
        self._departures = departures
        self._loads = loads

    def worker_lost(self, name: str, reason: str, now: float) -> None:
        """A process is gone, and its memory with it."""
        before = self._state.workers.get(name)
        loading = before.loading if before else None
        worker = self._workers.ended(name, now)
        if worker is None:
            return
        # Those that are waited for come back first: sorting is stable, so the rest keep their order.
        models = sorted(self._state.models_on(name), key=lambda model: model.run is None and not model.queue)
        for model in models:
            if model.run is not None:
                self._runs.lost(model.run, reason)
            if model.key == loading:
                self._blame(model, reason)
            self._model_lost(model, worker, reason, now)
            if worker.crashes >= UNWELL_AFTER and worker.restart_at_s is not None:
                delay_s = restart_delay_s(worker.crashes)
                self._requests.fail_waiting(model, WorkerLost(reason, retry_after_s=delay_s))
        self._workers.drop_if_unused(worker)

    def _blame(self, model: ModelRecord, reason: str) -> None:
        """The worker died while it built this model, and perhaps because of it."""
        model.load_crashes += 1
        if model.failure is None and model.load_crashes >= self._state.limits.max_load_crashes:
            model.failure = LoadFailed(model.key.name, f"its worker died while loading it: {reason}")

    def _model_lost(self, model: ModelRecord, worker: WorkerRecord, reason: str, now: float) -> None:
        if model.state is ModelState.UNLOADING:
            self._departures.gone(model)
        elif model.closing:
            self._departures.give_up(model, WorkerLost(reason))
        elif model.failure is not None:
            self._departures.give_up(model, model.failure)
        else:
            self._state.move(model, ModelState.LOADING, f"its worker was lost: {reason}")
            if not model.wanted:
                # Nobody waits for an end: it may take until the worker is started again, and its whole time then.
                self._loads.set_deadline(model, now if worker.restart_at_s is None else worker.restart_at_s)
            self._loads.line_up(model)
