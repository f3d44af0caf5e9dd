"""Worker processes: started when a model needs one, started again when they die, ended when nobody needs them."""

from moorage.domain.model import Isolation, ModelState
from moorage.scheduling.actions import KillWorker, StartWorker, StopWorker
from moorage.scheduling.budget import LeaseKind, Want
from moorage.scheduling.placement import worker_of
from moorage.scheduling.records import ModelRecord, WorkerRecord, WorkerState
from moorage.scheduling.recovery import crashes_in_a_row, restart_delay_s
from moorage.scheduling.state import State
from moorage.scheduling.timers import RestartDue


class Workers:
    """Decides about processes."""

    def __init__(self, state: State) -> None:
        self._state = state

    def of(self, model: ModelRecord, device: str) -> WorkerRecord:
        """The model's worker on a device, which the model lives in from now on."""
        name = worker_of(model.key, model.spec, device)
        worker = self._state.workers.get(name)
        if worker is None:
            dedicated = model.spec.isolation is Isolation.DEDICATED
            worker = self._state.workers[name] = WorkerRecord(name, device, dedicated)
        if model.worker is None:
            model.worker = name
            worker.models[model.key] = None
        return worker

    def missing_context_bytes(self, model: ModelRecord, device: str) -> int:
        """What the model's worker would take by itself, if it does not have it yet, or is about to give it up."""
        worker = self._state.workers.get(worker_of(model.key, model.spec, device))
        has_context = worker is not None and worker.context is not None and not worker.context.leaving
        return 0 if has_context else self._context_bytes(device)

    def _context_bytes(self, device: str) -> int:
        return self._state.devices[device].limits.context_bytes

    def want_context(self, worker: WorkerRecord) -> Want:
        """The worker's own memory, to be leased with what it is needed for."""
        budget = self._state.devices[worker.device].budget
        return Want(budget, worker.worker, LeaseKind.CONTEXT, self._context_bytes(worker.device))

    def ensure_started(self, worker: WorkerRecord) -> None:
        """Start a process that has its memory and does not run."""
        if worker.startable and worker.context is not None:
            worker.state = WorkerState.STARTING
            self._state.actions.append(StartWorker(worker.worker, worker.device))

    def up(self, name: str, now: float) -> None:
        """A process answers."""
        worker = self._state.workers.get(name)
        if worker is not None and worker.state is WorkerState.STARTING:
            worker.state = WorkerState.UP
            worker.up_since_s = now
            self._touch_models(worker)

    def _touch_models(self, worker: WorkerRecord) -> None:
        self._state.stir(worker.device)
        for model in self.models_of(worker):
            self._state.touch(model)

    def models_of(self, worker: WorkerRecord) -> list[ModelRecord]:
        """The models that live in it."""
        return [self._state.models[key] for key in worker.models]

    def ended(self, name: str, now: float) -> WorkerRecord | None:
        """A process is gone; plans the restart if nobody asked it to go. None if that is no news."""
        worker = self._state.workers.get(name)
        if worker is None or worker.state is WorkerState.DOWN:
            return None
        if worker.state is not WorkerState.STOPPING or worker.device_lost:
            was_up = worker.state is WorkerState.UP or worker.device_lost
            up_for_s = now - worker.up_since_s if was_up else 0.0
            worker.crashes = crashes_in_a_row(worker.crashes, up_for_s)
            worker.restart_at_s = now + restart_delay_s(worker.crashes)
            self._state.timers.add(worker.restart_at_s, RestartDue(name))
        worker.state = WorkerState.DOWN
        worker.device_lost = False
        worker.loading = None
        self._end_quarantine(worker)
        self._touch_models(worker)
        return worker

    def _end_quarantine(self, worker: WorkerRecord) -> None:
        """What models left behind went with the process: they may come back."""
        for key, lease in worker.retained.items():
            self._state.release(lease)
            model = self._state.models.get(key)
            if model is not None and model.quarantined_in == worker.worker:
                model.quarantined_in = None
                model.failure = None
                if model.state is ModelState.FAILED:
                    self._state.move(model, ModelState.UNLOADED, "its worker has ended")
        worker.retained.clear()

    def restart_due(self, name: str, now: float) -> None:
        """The back-off is over: the next load that needs the worker starts it."""
        worker = self._state.workers.get(name)
        if worker is not None and worker.restart_at_s is not None and worker.restart_at_s <= now:
            worker.restart_at_s = None
            self._state.stir(worker.device)

    def device_lost(self, worker: WorkerRecord, reason: str) -> None:
        """End a process that can't use its device any more, as it may do by itself. That counts as a crash."""
        worker.device_lost |= worker.state is WorkerState.UP
        self.kill(worker, reason)

    def kill(self, worker: WorkerRecord, reason: str) -> None:
        """End a process that no longer obeys. It is sent nothing more, and started again without a back-off."""
        if worker.state is WorkerState.UP:
            worker.state = WorkerState.STOPPING
            self._state.actions.append(KillWorker(worker.worker, reason))
            self._touch_models(worker)

    def leave(self, model: ModelRecord) -> None:
        """A model no longer needs its worker."""
        worker = self._state.worker_of(model)
        model.worker = None
        if worker is not None:
            worker.models.pop(model.key, None)
            self.drop_if_unused(worker)

    def drop_if_unused(self, worker: WorkerRecord) -> None:
        """End a dedicated worker without a model, and forget any worker that is down and needed by nobody."""
        if worker.models:
            return
        if worker.state is WorkerState.DOWN:
            self._state.workers.pop(worker.worker, None)
            if worker.context is not None:
                self._state.release(worker.context)
                worker.context = None
        elif worker.dedicated and worker.state is not WorkerState.STOPPING:
            worker.state = WorkerState.STOPPING
            self._state.actions.append(StopWorker(worker.worker))
            if worker.context is not None:
                self._state.devices[worker.device].budget.leave(worker.context)
                self._state.stir(worker.device)
