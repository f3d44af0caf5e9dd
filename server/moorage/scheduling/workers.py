"""Worker processes: started when a model needs one, started again when they die, ended when nobody needs them."""

from moorage.domain.model import Isolation
from moorage.scheduling.actions import KillWorker, StartWorker, StopWorker
from moorage.scheduling.budget import LeaseKind
from moorage.scheduling.placement import worker_of
from moorage.scheduling.recovery import crashes_in_a_row, restart_delay_s
from moorage.scheduling.state import ModelRecord, State, WorkerRecord, WorkerState
from moorage.scheduling.timers import RestartDue


class Workers:
    """Decides about processes."""

    def __init__(self, state: State) -> None:
        self._state = state

    def of(self, model: ModelRecord, device: str) -> WorkerRecord:
        """The model's worker on a device. Where it does not run it is started, if its own memory can be leased."""
        model.worker = worker_of(model.key, model.spec, device)
        worker = self._state.workers.get(model.worker)
        if worker is None:
            dedicated = model.spec.isolation is Isolation.DEDICATED
            worker = self._state.workers[model.worker] = WorkerRecord(model.worker, device, dedicated)
        if worker.startable:
            self._start(worker)
        return worker

    def _start(self, worker: WorkerRecord) -> None:
        if worker.context is None:
            context_bytes = self._state.context_bytes[worker.device]
            worker.context = self._state.budgets[worker.device].acquire(worker.worker, LeaseKind.CONTEXT, context_bytes)
        if worker.context is not None:
            worker.state = WorkerState.STARTING
            self._state.actions.append(StartWorker(worker.worker, worker.device))

    def up(self, name: str, now: float) -> None:
        """A process answers."""
        worker = self._state.workers.get(name)
        if worker is not None and worker.state is WorkerState.STARTING:
            worker.state = WorkerState.UP
            worker.up_since_s = now
            self._state.stir(worker.device)

    def ended(self, name: str, now: float) -> WorkerRecord | None:
        """A process is gone; plans the restart if nobody asked it to go. None if that is no news."""
        worker = self._state.workers.get(name)
        if worker is None or worker.state is WorkerState.DOWN:
            return None
        if worker.state is not WorkerState.STOPPING:
            up_for_s = now - worker.up_since_s if worker.state is WorkerState.UP else 0.0
            worker.crashes = crashes_in_a_row(worker.crashes, up_for_s)
            worker.restart_at_s = now + restart_delay_s(worker.crashes)
            self._state.timers.add(worker.restart_at_s, RestartDue(name))
        worker.state = WorkerState.DOWN
        worker.loading = None
        self._state.stir(worker.device)
        return worker

    def restart_due(self, name: str, now: float) -> None:
        """The back-off is over: the next load that needs the worker starts it."""
        worker = self._state.workers.get(name)
        if worker is not None and worker.restart_at_s is not None and worker.restart_at_s <= now:
            worker.restart_at_s = None
            self._state.stir(worker.device)

    def kill(self, worker: WorkerRecord, reason: str) -> None:
        """End a process that no longer obeys. It is sent nothing more, and started again without a back-off."""
        if worker.state is WorkerState.UP:
            worker.state = WorkerState.STOPPING
            self._state.actions.append(KillWorker(worker.worker, reason))

    def leave(self, model: ModelRecord) -> None:
        """A model no longer needs its worker."""
        worker = self._state.workers.get(model.worker or "")
        model.worker = None
        if worker is not None:
            self.drop_if_unused(worker)

    def drop_if_unused(self, worker: WorkerRecord) -> None:
        """End a dedicated worker without a model, and forget any worker that is down and needed by nobody."""
        if self._state.models_on(worker.worker):
            return
        if worker.state is WorkerState.DOWN:
            self._state.workers.pop(worker.worker, None)
            if worker.context is not None:
                self._state.release(worker.context)
                worker.context = None
        elif worker.dedicated and worker.state is not WorkerState.STOPPING:
            worker.state = WorkerState.STOPPING
            self._state.actions.append(StopWorker(worker.worker))
