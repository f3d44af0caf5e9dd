"""The life of runs of models that compute a batch at a time: begun in their turn, and ended one way or another."""

import math
from collections.abc import Callable, Iterable

from moorage.domain.errors import ContractBroken, DeviceLost, MoorageError, WorkerLost
from moorage.domain.request import RehearsedRun, RunResult
from moorage.scheduling.actions import Execute, Run, StepPlan, Succeed
from moorage.scheduling.batching import form_batch, halves
from moorage.scheduling.budget import LeaseKind
from moorage.scheduling.entries import Entry
from moorage.scheduling.placement import most_workspace_bytes
from moorage.scheduling.prospects import ANSWER_S, row_bytes_of
from moorage.scheduling.punctuality import in_time, late_already
from moorage.scheduling.records import ModelRecord
from moorage.scheduling.requests import Requests
from moorage.scheduling.splitting import note_computed
from moorage.scheduling.state import State
from moorage.scheduling.turns import Turns
from moorage.scheduling.workers import Workers

MayJoin = Callable[[Entry], bool]
"""Who of a queue may take part in the next run or step."""


class Runs:
    """Decides what a run is. A model runs one batch at a time in each of its instances."""

    def __init__(self, state: State, requests: Requests, workers: Workers) -> None:
        self._state = state
        self._requests = requests
        self._workers = workers
        self._turns = Turns(state)

    def needed_bytes(self, model: ModelRecord, first: Entry | None) -> int:
        """What the smallest next run takes: that of the request whose turn it is."""
        return model.workspaces.bytes_of(first.request) if first is not None else 0

    def start(self, model: ModelRecord, room_bytes: float, now: float, may_join: MayJoin | None = None) -> bool:
        """Begin the next run with as many requests as fit the room; whether the first of them did."""
        batch = self._batch(model, room_bytes, may_join, now)
        latest_s = now + model.slow_run_s + ANSWER_S
        for entry in batch:
            if entry.request.deadline_s < latest_s:
                batch = self._in_time(model, batch, room_bytes, may_join, now)
                break
        if not batch:
            return False
        for entry in batch:
            model.queue.remove(entry)
        model.queue.left(batch, now)
        rows = sum(entry.request.rows for entry in batch)
        row_bytes = _row_bytes(model, batch) if model.workspaces.has_learned else 0
        self.begin(model, batch, rows, model.workspaces.bytes_for(rows, row_bytes), now)
        return True

    def _batch(self, model: ModelRecord, room_bytes: float, may_join: MayJoin | None, now: float) -> list[Entry]:
        waiting = model.queue if may_join is None else filter(may_join, model.queue)
        most_rows = model.most_rows
        if model.ceiling is not None:
            most_rows = model.ceiling.most_rows(most_rows, now)
        most_bytes = self._state.limits.max_input_bytes
        return form_batch(
            waiting,
            model.workspaces,
            most_rows,
            free_bytes=room_bytes,
            max_input_bytes=most_bytes,
            preferred_sizes=model.spec.batching.preferred_sizes,
        )

    def _in_time(
        self, model: ModelRecord, batch: list[Entry], room_bytes: float, may_join: MayJoin | None, now: float
    ) -> list[Entry]:
        """The next run without those whom it would answer too late: they are refused, or wait for another one."""
        while late := late_already(model, batch, now):
            for entry, error in late:
                self._requests.refuse(model, entry, error)
            batch = self._batch(model, room_bytes, may_join, now)
        return in_time(model, batch, now) if batch else batch

    def begin(
        self,
        model: ModelRecord,
        entries: list[Entry],
        rows: int,
        workspace_bytes: int,
        now: float,
        step: StepPlan | None = None,
    ) -> None:
        """Lease the workspace and send the run, or step, of so many rows off. The room for it was seen to be there."""
        assert model.worker is not None
        device = self._state.device_of(model)
        self._state.end_first_run(model)
        lease = device.budget.acquire(model.semaphore.owner, LeaseKind.WORKSPACE, workspace_bytes, model.semaphore)
        assert lease is not None, f"{model.key}: no room for {workspace_bytes} bytes"
        self._state.last_run_id += 1
        instance = 0
        if model.runs:
            instance, model.beside_s = _free_instance(model), now
        run = Run(self._state.last_run_id, model.key, model.worker, tuple(entries), rows, lease, now, step, instance)
        model.runs.append(run)
        self._state.runs[run.run_id] = run
        device.runs += 1
        self._state.actions.append(Execute(run))

    def finished(self, run_id: int, result: RunResult, now: float) -> None:
        """A run came back: answer those who still wait."""
        run = self.end(run_id, now)
        if run is None:
            return
        self._state.actions.append(Succeed(run, result))
        model = self._state.models[run.key]
        run_s = now - run.started_s
        if model.rows_vary:
            model.seconds.note(run.rows, run_s, row_bytes_of(run.entries), now)
        else:
            model.seconds.note(run.rows, run_s)
        if model.spec.max_batch_size > 1:
            model.paying.ran(model.seconds, run.rows + model.queue.rows)
        if result.peak_bytes is not None:
            self.learn_peak(model, run, result.peak_bytes)
        if run_s > model.slow_run_s:
            model.slow_run_s, model.worst_wait_s = 0.0, math.inf
        callers = len(run.entries)
        if self._state.split:
            callers -= note_computed(self._state, run.entries)
        if model.spec.max_batch_size > 1 and callers:
            model.company.answered(callers, run_s, now)
            if not model.queue and not model.runs:
                self._turns.expect_back(model, run, now)
        for entry in run.entries:
            self._state.entries.pop(entry.request.request_id, None)

    def learn_peak(self, model: ModelRecord, run: Run, peak_bytes: int) -> None:
        """A run, or step, took so much memory beside weights and states."""
        self._note_peak(model, run.rows, _row_bytes(model, run.entries), peak_bytes)

    def learn_warmup(self, model: ModelRecord, runs: Iterable[RehearsedRun], now: float) -> None:
        """A model came after these runs. Their seconds count where nothing else is known: callers' data differ."""
        is_new = model.seconds.is_empty
        for run in runs:
            if run.peak_bytes is not None:
                self._note_peak(model, run.rows, run.row_bytes, run.peak_bytes)
            if is_new and run.seconds is not None:
                model.seconds.note(run.rows, run.seconds, run.row_bytes if model.rows_vary else None, now)

    def _note_peak(self, model: ModelRecord, rows: int, row_bytes: int, peak_bytes: int) -> None:
        model.workspaces.most_bytes = most_workspace_bytes(model, self._state.device_of(model))
        model.workspaces.note(rows, row_bytes, peak_bytes)

    def failed(self, run: Run, error: MoorageError, now: float) -> None:
        """A run failed: a lone request is answered with the error, batch-mates are tried again in two halves.

        So who is at fault is found in about twice the logarithm of their number of runs, and nobody else fails; and
        who found no memory together finds it apart; a lone request likewise, where its rows may be split, or elsewhere.
        Where the model broke its contract with the server it is at fault itself, and everybody is told.
        """
        model = self._state.models[run.key]
        alive = self.alive(run)
        if isinstance(error, DeviceLost):
            self._device_lost(run, alive, error)
        elif len(run.entries) == 1 or isinstance(error, ContractBroken):
            for entry in alive:
                self._requests.fail_or_halve(model, entry, error, now)
        else:
            for half in halves(alive):
                self.set_apart(half)
            self.put_back(run, alive)

    def _device_lost(self, run: Run, alive: list[Entry], error: DeviceLost) -> None:
        """Its worker can compute nothing any more, whoever asks: who was alone there is at fault, others may not be."""
        worker = self._state.workers.get(run.worker)
        beside = any(other.worker == run.worker for other in self._state.runs.values())
        alone = len(run.entries) == 1 and not beside and worker is not None and not worker.device_lost
        if worker is not None:
            self._workers.device_lost(worker, f"its device failed under a run of {run.key}")
        if not alone:
            self.retry(run, alive, "the device failed")
            return
        for entry in alive:
            self._requests.fail(entry, error)

    def set_apart(self, entries: Iterable[Entry]) -> None:
        """Have requests tried again together, and with nobody else."""
        self._state.last_cohort += 1
        for entry in entries:
            entry.cohort = self._state.last_cohort

    def overdue(self, run_id: int) -> None:
        """A run goes on long after the last who waited for it left. Only the end of its process ends it."""
        run = self._state.runs.get(run_id)
        worker = self._state.workers.get(run.worker) if run else None
        if run is not None and worker is not None:
            self._workers.kill(worker, f"a run of {run.key} outlived its requests")

    def lost(self, run: Run, reason: str, now: float) -> None:
        """A run's worker died: its requests go back to their places, up to a number of times.

        One by one from now on: if one of them is what kills workers, it shall not take the others along again.
        """
        self.end(run.run_id, now)
        self.retry(run, self.alive(run), reason)

    def retry(self, run: Run, alive: list[Entry], reason: str) -> None:
        """Give requests another try after their worker died under them, or give them up."""
        retried: list[Entry] = []
        for entry in alive:
            entry.attempts += 1
            self.set_apart((entry,))
            if entry.attempts < self._state.limits.max_attempts:
                retried.append(entry)
            else:
                self._requests.fail(entry, WorkerLost(f"{reason}, {entry.attempts} times under this request"))
        self.put_back(run, retried)

    def put_back(self, run: Run, entries: list[Entry]) -> None:
        """Return requests of a run to their places."""
        model = self._state.models[run.key]
        model.queue.put_back(entries)
        self._state.touch(model)

    def end(self, run_id: int, now: float) -> Run | None:
        """End a run's lease; None if the run had already ended, as when its worker died meanwhile."""
        run = self._state.runs.pop(run_id, None)
        if run is not None:
            model = self._state.models[run.key]
            device = self._state.device_of(model)
            device.budget.release(run.workspace)
            device.runs -= 1
            self._state.stir(device.name)
            model.runs.remove(run)
            if self._state.policy.by_priority:
                model.due_s = self._turns.next_due_s(model, device, run, now) if device.ready else now
            model.served_s = now
            self._state.touch(model)
        return run

    def alive(self, run: Run) -> list[Entry]:
        """The members that still wait for their answers."""
        return [entry for entry in run.entries if self._state.is_open(entry)]


def _free_instance(model: ModelRecord) -> int:
    """The first that computes nothing: so the later ones' caches fill only where they are needed."""
    taken = {run.instance for run in model.runs}
    return next(instance for instance in range(model.spec.instances) if instance not in taken)


def _row_bytes(model: ModelRecord, entries: Iterable[Entry]) -> int:
    """The shape of a run. Steps are all of one: what they take does not depend on what their requests began with."""
    if model.stepped:
        return 0
    return max(entry.request.row_bytes for entry in entries)
