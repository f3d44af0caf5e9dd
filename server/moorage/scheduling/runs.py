"""The life of runs: begun when a model is free and memory is there, and ended one way or another."""

from moorage.domain.errors import MemoryExhausted, MoorageError, WorkerLost
from moorage.domain.model import ModelState
from moorage.domain.request import RunResult
from moorage.scheduling.actions import Execute, Run, Succeed
from moorage.scheduling.batching import form_batch
from moorage.scheduling.budget import DeviceBudget, LeaseKind
from moorage.scheduling.outlook import something_leaves
from moorage.scheduling.queue import Entry
from moorage.scheduling.requests import Requests
from moorage.scheduling.state import ModelRecord, State, WorkerState
from moorage.scheduling.timers import RunDue
from moorage.scheduling.workers import Workers


class Runs:
    """Decides what runs when. A model runs one batch at a time."""

    def __init__(self, state: State, requests: Requests, workers: Workers) -> None:
        self._state = state
        self._requests = requests
        self._workers = workers

    def start_next(self, model: ModelRecord, now: float) -> None:
        """Start the model's next run, if it can have one. Short of memory it takes its turn among its like."""
        if model.state is not ModelState.RESIDENT or model.run is not None or not model.queue:
            return
        assert model.device is not None
        assert model.worker is not None
        if self._state.workers[model.worker].state is not WorkerState.UP:
            return
        short = self._state.short_of_memory[model.device]
        if short and next(iter(short)) != model.key and model.spec.memory.workspace_bytes(1):
            short[model.key] = None
            return
        batch = self._next_batch(model, self._state.budgets[model.device])
        if batch:
            self._state.leave_line(model)
            self._start(model, batch, now)
        elif model.queue:
            short[model.key] = None
        else:
            self._state.leave_line(model)

    def _next_batch(self, model: ModelRecord, budget: DeviceBudget) -> list[Entry]:
        """What fits the free memory now. Requests that no run's end could make fit are answered on the way."""
        while True:
            batch = form_batch(
                model.queue,
                model.spec,
                free_bytes=budget.free_bytes,
                max_input_bytes=self._state.limits.max_input_bytes,
            )
            if batch or not self._refuse_head(model, budget):
                return batch

    def _refuse_head(self, model: ModelRecord, budget: DeviceBudget) -> bool:
        """Answer the request whose turn it is, if waiting for memory is no use to it; whether that was so."""
        head = model.queue.head
        error = _crowded_out(model, head, budget) if head else None
        if head is None or error is None or something_leaves(self._state, budget.device):
            return False
        model.queue.remove(head)
        self._requests.fail(head, error)
        return True

    def _start(self, model: ModelRecord, batch: list[Entry], now: float) -> None:
        assert model.device is not None
        assert model.worker is not None
        for entry in batch:
            model.queue.remove(entry)
        rows = sum(entry.request.rows for entry in batch)
        workspace_bytes = model.spec.memory.workspace_bytes(rows)
        budget = self._state.budgets[model.device]
        lease = budget.acquire(str(model.key), LeaseKind.WORKSPACE, workspace_bytes)
        assert lease is not None
        self._state.last_run_id += 1
        run = Run(self._state.last_run_id, model.key, model.worker, tuple(batch), rows, lease, now)
        model.run = self._state.runs[run.run_id] = run
        last_deadline_s = max(entry.request.deadline_s for entry in batch)
        self._state.timers.add(last_deadline_s + self._state.limits.hang_timeout_s, RunDue(run.run_id))
        self._state.actions.append(Execute(run))

    def start_waiting(self, device: str, now: float) -> None:
        """After memory came free: start the runs that waited for it, in their order, until one still can't."""
        short = self._state.short_of_memory[device]
        while short:
            key = next(iter(short))
            self.start_next(self._state.models[key], now)
            if next(iter(short), None) == key:
                return

    def finished(self, run_id: int, result: RunResult, now: float) -> None:
        """A run came back: answer those who still wait, and go on."""
        run = self._end(run_id)
        if run is None:
            return
        self._state.actions.append(Succeed(run, result))
        for entry in run.entries:
            self._state.entries.pop(entry.request.request_id, None)
        self.start_next(self._state.models[run.key], now)

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
                self._requests.fail(entry, error)
        self.start_next(self._state.models[run.key], now)

    def overdue(self, run_id: int) -> None:
        """A run goes on long after anybody waits for it. Only the end of its process ends it."""
        run = self._state.runs.get(run_id)
        worker = self._state.workers.get(run.worker) if run else None
        if run is not None and worker is not None:
            self._workers.kill(worker, f"a run of {run.key} outlived its requests")

    def lost(self, run: Run, reason: str) -> None:
        """A run's worker died: its requests go back to the head of their queue, up to a number of times.

        One by one from now on: if one of them is what kills workers, it shall not take the others along again.
        """
        self._end(run.run_id)
        retried: list[Entry] = []
        for entry in self._alive(run):
            entry.attempts += 1
            entry.alone = True
            if entry.attempts < self._state.limits.max_attempts:
                retried.append(entry)
            else:
                self._requests.fail(entry, WorkerLost(f"{reason}, {entry.attempts} times under this request"))
        self._state.models[run.key].queue.put_back(retried)

    def _end(self, run_id: int) -> Run | None:
        """End a run's lease; None if the run had already ended, as when its worker died meanwhile."""
        run = self._state.runs.pop(run_id, None)
        if run is not None:
            self._state.release(run.workspace)
            self._state.models[run.key].run = None
        return run

    def _alive(self, run: Run) -> list[Entry]:
        entries = self._state.entries
        return [entry for entry in run.entries if entries.get(entry.request.request_id) is entry]


def _crowded_out(model: ModelRecord, entry: Entry, budget: DeviceBudget) -> MemoryExhausted | None:
    """Why a run of this request can't be had while the weights on the device stay, if it can't.

    Without this it would hold up every other model's runs until its deadline, for memory that does not come.
    """
    needed_bytes = model.spec.memory.workspace_bytes(entry.request.rows)
    if needed_bytes <= budget.free_without_runs_bytes:
        return None
    what = f"a run of {entry.request.rows} rows of model '{model.key.name}'"
    return budget.exhausted(what, needed_bytes, budget.free_without_runs_bytes)
