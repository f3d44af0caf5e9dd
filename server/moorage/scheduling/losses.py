"""What becomes of a worker's runs and models when its process is gone."""

from moorage.domain.errors import LoadFailed, WorkerLost
from moorage.domain.model import ModelState
from moorage.scheduling.actions import Run
from moorage.scheduling.departures import Departures
from moorage.scheduling.records import ModelRecord, WorkerRecord
from moorage.scheduling.recovery import UNWELL_AFTER, restart_delay_s
from moorage.scheduling.requests import Requests
from moorage.scheduling.runs import Runs
from moorage.scheduling.state import State
from moorage.scheduling.stepping import Steps
from moorage.scheduling.timers import LoadDue
from moorage.scheduling.workers import Workers


class Losses:
    """Decides about what was lost: requests are tried again, and models come back by themselves."""

    def __init__(
        self, state: State, requests: Requests, runs: Runs, steps: Steps, workers: Workers, departures: Departures
    ) -> None:
        self._state = state
        self._requests = requests
        self._runs = runs
        self._steps = steps
        self._workers = workers
        self._departures = departures

    def worker_lost(self, name: str, reason: str, now: float) -> None:
        """A process is gone, and its memory with it."""
        before = self._state.workers.get(name)
        loading = before.loading if before and not before.device_lost else None
        worker = self._workers.ended(name, now)
        if worker is None:
            return
        # Those that are waited for come back first: sorting is stable, so the rest keep their order.
        models = sorted(self._workers.models_of(worker), key=lambda model: not model.runs and not model.queue)
        for model in models:
            self._lose_work(model, reason, now)
            if model.key == loading:
                self._blame(model, reason)
            self._model_lost(model, worker, reason, now)
            if worker.crashes >= UNWELL_AFTER and worker.restart_at_s is not None:
                delay_s = restart_delay_s(worker.crashes)
                self._requests.fail_waiting(model, WorkerLost(reason, retry_after_s=delay_s))
        if worker.context is not None:
            self._state.devices[worker.device].budget.stay(worker.context)
        self._workers.drop_if_unused(worker)

    def _lose_work(self, model: ModelRecord, reason: str, now: float) -> None:
        """What was computed is tried again. Where the model was killed to make room, that is no fault of anybody's."""
        for run in tuple(model.runs):
            if model.killed:
                self._gave_way(model, run, now)
            elif run.step is None:
                self._runs.lost(run, reason, now)
        self._steps.lost(model, reason, now)

    def _gave_way(self, model: ModelRecord, run: Run, now: float) -> None:
        self._runs.end(run.run_id, now)
        alive = self._runs.alive(run)
        for entry in alive:
            entry.preemptions += 1
            model.counts.preemptions += 1
        if run.step is None:
            self._runs.put_back(run, alive)

    def _blame(self, model: ModelRecord, reason: str) -> None:
        """The worker died while it built this model, and perhaps because of it."""
        model.load_crashes += 1
        if model.failure is None and model.load_crashes >= self._state.limits.max_load_crashes:
            model.failure = LoadFailed(model.key.name, f"its worker died while loading it: {reason}")

    def _model_lost(self, model: ModelRecord, worker: WorkerRecord, reason: str, now: float) -> None:
        killed, model.killed = model.killed, False
        if model.state is ModelState.UNLOADING:
            self._departures.gone(model)
        elif model.closing:
            self._departures.give_up(model, WorkerLost(reason))
        elif model.failure is not None:
            self._departures.give_up(model, model.failure)
        elif killed or model.state in {ModelState.OFFLOADING, ModelState.OFFLOADED}:
            # Its memory was given up: its next request brings it back, from disk.
            self._departures.out(model, ModelState.UNLOADED, f"its worker was lost: {reason}")
        else:
            self._come_back(model, worker, reason, now)

    def _come_back(self, model: ModelRecord, worker: WorkerRecord, reason: str, now: float) -> None:
        """It keeps its memory, so that no newcomer takes its place, and is built again."""
        self._departures.release_host(model)
        model.cold = False
        self._state.move(model, ModelState.LOADING, f"its worker was lost: {reason}")
        if model.weights is not None:
            # It may take until the worker is started again, and its whole time then.
            model.load_deadline_s = now if worker.restart_at_s is None else worker.restart_at_s
            model.load_deadline_s += model.spec.load_timeout_s
            self._state.timers.add(model.load_deadline_s, LoadDue(model.key))
            self._state.building[model.key] = None
