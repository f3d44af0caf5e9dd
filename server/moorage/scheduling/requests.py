"""The life of requests: admitted, queued, run, answered. Each ends by exactly one Succeed or Fail, or a cancel."""

from moorage.domain.errors import DeadlineExceeded, ModelNotFound, MoorageError, WorkerLost
from moorage.domain.model import ModelState
from moorage.domain.request import InferenceRequest, RunResult
from moorage.scheduling.actions import Execute, Fail, Run, Succeed
from moorage.scheduling.admission import never_fits, refusal
from moorage.scheduling.batching import form_batch
from moorage.scheduling.budget import LeaseKind
from moorage.scheduling.queue import Entry
from moorage.scheduling.state import ModelRecord, State
from moorage.scheduling.timers import RequestDue


class Requests:
    """Decides about requests and runs."""

    def __init__(self, state: State) -> None:
        self._state = state

    def arrived(self, request: InferenceRequest, now: float) -> ModelRecord | None:
        """Queue or refuse a request; the model it joined, if it joined one."""
        model = self._state.models.get(request.model)
        error = (
            ModelNotFound(request.model.name, str(request.model.version))
            if model is None
            else refusal(self._state, model, request, now)
        )
        if model is None or error is not None:
            self._state.actions.append(Fail(request, error or ModelNotFound(request.model.name)))
            return None
        entry = Entry(request)
        self._state.entries[request.request_id] = entry
        self._state.timers.add(request.deadline_s, RequestDue(request.request_id))
        model.queue.append(entry)
        return model

    def start_next(self, model: ModelRecord, now: float) -> None:
        """Start the model's next run, if it can have one. Short of memory it takes its turn among its like."""
        if model.state is not ModelState.RESIDENT or model.run is not None or not model.queue:
            return
        if model.device is None or model.worker is None:  # pragma: no cover - resident models have both
            return
        short = self._state.short_of_memory[model.device]
        if short and next(iter(short)) != model.key and model.spec.memory.workspace_bytes(1):
            short.setdefault(model.key)
            return
        budget = self._state.budgets[model.device]
        batch = form_batch(
            model.queue,
            model.spec,
            free_bytes=budget.free_bytes,
            max_input_bytes=self._state.limits.max_input_bytes,
        )
        rows = sum(entry.request.rows for entry in batch)
        workspace_bytes = model.spec.memory.workspace_bytes(rows)
        lease = budget.acquire(str(model.key), LeaseKind.WORKSPACE, workspace_bytes) if batch else None
        if lease is None:
            short.setdefault(model.key)
            return
        short.pop(model.key, None)
        for entry in batch:
            model.queue.remove(entry)
        self._state.last_run_id += 1
        run = Run(self._state.last_run_id, model.key, model.worker, tuple(batch), rows, lease, now)
        model.run = self._state.runs[run.run_id] = run
        self._state.actions.append(Execute(run))

    def start_waiting(self, device: str, now: float) -> None:
        """After memory came free: start the runs that waited for it, in their order, until one still can't."""
        short = self._state.short_of_memory[device]
        while short:
            key = next(iter(short))
            self.start_next(self._state.models[key], now)
            if next(iter(short), None) == key:
                if self._state.models[key].queue:
                    return
                del short[key]

    def finished(self, run_id: int, result: RunResult, now: float) -> None:
        """A run came back: answer those who still wait, and go on."""
        run = self._end(run_id)
        if run is None:
            return
        self._state.actions.append(Succeed(run, result))
        for entry in run.entries:
            self._state.entries.pop(entry.request.request_id, None)
        self._go_on(run, now)

    def failed(self, run_id: int, error: MoorageError, now: float) -> None:
        """A run failed: a lone request is answered with the error, batch-mates are tried one by one."""
        run = self._end(run_id)
        if run is None:
            return
        alive = self._alive(run)
        if len(run.entries) > 1:
            for entry in alive:
                entry.alone = True
            self._state.models[run.key].queue.put_back(alive)
        else:
            for entry in alive:
                self.fail(entry, error)
        self._go_on(run, now)

    def lost(self, run: Run, reason: str) -> None:
        """A run's worker died: its requests go back to the head of their queue, up to a number of times."""
        self._end(run.run_id)
        retried: list[Entry] = []
        for entry in self._alive(run):
            entry.attempts += 1
            if entry.attempts < self._state.limits.max_attempts:
                retried.append(entry)
            else:
                self.fail(entry, WorkerLost(f"{reason}, {entry.attempts} times under this request"))
        self._state.models[run.key].queue.put_back(retried)

    def refuse_what_never_fits(self, model: ModelRecord) -> None:
        """Answer the waiting requests that turn out too large now that the weights are measured."""
        for entry in list(model.queue):
            error = never_fits(self._state, model, entry.request.rows)
            if error is not None:
                model.queue.remove(entry)
                self.fail(entry, error)

    def fail_waiting(self, model: ModelRecord, error: MoorageError) -> None:
        """Answer all that wait for a model with one error."""
        for entry in list(model.queue):
            model.queue.remove(entry)
            self.fail(entry, error)

    def fail(self, entry: Entry, error: MoorageError) -> None:
        """Answer one request that is in no queue with an error."""
        del self._state.entries[entry.request.request_id]
        self._state.actions.append(Fail(entry.request, error))

    def expired(self, request_id: int, now: float) -> ModelRecord | None:
        """A deadline passed; the model whose queue got shorter, if one did."""
        entry = self._state.entries.get(request_id)
        if entry is None:
            return None
        waited_s = now - entry.request.arrived_s
        model = self._leave(entry)
        state = "while it was computed" if model is None else "while it waited"
        self._state.actions.append(Fail(entry.request, DeadlineExceeded(waited_s, state)))
        return model

    def cancelled(self, request_id: int) -> ModelRecord | None:
        """The caller has gone; the model whose queue got shorter, if one did."""
        entry = self._state.entries.get(request_id)
        return None if entry is None else self._leave(entry)

    def _leave(self, entry: Entry) -> ModelRecord | None:
        del self._state.entries[entry.request.request_id]
        model = self._state.models[entry.request.model]
        if entry not in model.queue:
            return None
        model.queue.remove(entry)
        return model

    def _end(self, run_id: int) -> Run | None:
        """End a run's lease; None if the run had already ended, as when its worker died meanwhile."""
        run = self._state.runs.pop(run_id, None)
        if run is not None:
            self._state.budgets[run.workspace.device].release(run.workspace)
            self._state.models[run.key].run = None
        return run

    def _alive(self, run: Run) -> list[Entry]:
        entries = self._state.entries
        return [entry for entry in run.entries if entries.get(entry.request.request_id) is entry]

    def _go_on(self, run: Run, now: float) -> None:
        if run.workspace.size_bytes:
            self.start_waiting(run.workspace.device, now)
        self.start_next(self._state.models[run.key], now)
