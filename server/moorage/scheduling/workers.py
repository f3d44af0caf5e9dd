"""Worker processes: started when a model needs one, started again when they die, ended when nobody needs them."""

from moorage.domain.model import Isolation, ModelState
from moorage.scheduling.actions import StartWorker, StopWorker
from moorage.scheduling.budget import LeaseKind
from moorage.scheduling.placement import worker_of
from moorage.scheduling.recovery import crashes_in_a_row, restart_delay_s
from moorage.scheduling.state import ModelRecord, State, WorkerRecord, WorkerState
from moorage.scheduling.timers import RestartDue


class Workers:
    """Decides about processes."""

    def __init__(self, state: State) -> None:
        self._state = state

    def ready_for(self, model: ModelRecord) -> WorkerRecord | None:
        """The model's worker if it is up. Where it has none, one is started, if its own memory can be leased."""
        assert model.device is not None
        model.worker = worker_of(model.key, model.spec, model.device)
        worker = self._state.workers.get(model.worker)
        if worker is None:
            dedicated = model.spec.isolation is Isolation.DEDICATED
            worker = WorkerRecord(model.worker, model.device, dedicated)
            self._state.workers[model.worker] = worker
        if worker.state is WorkerState.UP:
            return worker
        if worker.state is WorkerState.DOWN and worker.restart_at_s is None:
            self._start(worker)
        return None

    def can_start(self, model: ModelRecord) -> bool:
        """Whether the model's worker is on its way, rather than short of memory for itself."""
        worker = self._state.workers.get(model.worker or "")
        return worker is not None and (worker.state is not WorkerState.DOWN or worker.restart_at_s is not None)

    def _start(self, worker: WorkerRecord) -> None:
        if worker.context is None:
            context_bytes = self._state.devices[worker.device].context_bytes
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

    def ended(self, name: str, now: float) -> WorkerRecord | None:
        """A process is gone, and its own memory with it. Plans the restart if models need it."""
        worker = self._state.workers.get(name)
        if worker is None:
            return None
        if worker.context is not None:
            self._state.budgets[worker.device].release(worker.context)
            worker.context = None
        expected = worker.state is WorkerState.STOPPING
        up_for_s = now - worker.up_since_s if worker.state is WorkerState.UP else 0.0
        worker.state = WorkerState.DOWN
        worker.loading = None
        if not expected:
            worker.crashes = crashes_in_a_row(worker.crashes, up_for_s)
            worker.restart_at_s = now + restart_delay_s(worker.crashes)
            self._state.timers.add(worker.restart_at_s, RestartDue(name))
        return worker

    def restart_due(self, name: str, now: float) -> None:
        """The back-off is over: the next load that needs the worker starts it."""
        worker = self._state.workers.get(name)
        if worker is not None and worker.restart_at_s is not None and worker.restart_at_s <= now:
            worker.restart_at_s = None
            self.drop_if_unused(worker)

    def leave(self, model: ModelRecord) -> None:
        """A model no longer needs its worker; one of its own has nothing else to do."""
        worker = self._state.workers.get(model.worker or "")
        model.worker = None
        if worker is not None:
            self.drop_if_unused(worker)

    def drop_if_unused(self, worker: WorkerRecord) -> None:
        """End a dedicated worker without a model, and forget any worker that is down and needed by nobody."""
        if any(model.worker == worker.worker and _needs(model) for model in self._state.models.values()):
            return
        if worker.state is WorkerState.DOWN:
            self._state.workers.pop(worker.worker, None)
        elif worker.dedicated and worker.state is not WorkerState.STOPPING:
            worker.state = WorkerState.STOPPING
            self._state.actions.append(StopWorker(worker.worker))


def _needs(model: ModelRecord) -> bool:
    return model.state in {ModelState.LOADING, ModelState.RESIDENT, ModelState.UNLOADING}
