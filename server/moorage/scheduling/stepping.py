"""The life of stepped requests: they join and leave a model's run between its steps."""

from collections.abc import Iterable

from moorage.domain.model import ModelState
from moorage.domain.request import StepResult
from moorage.scheduling.actions import Emit, Run, StepPlan, SucceedStepped
from moorage.scheduling.budget import LeaseKind
from moorage.scheduling.entries import Entry
from moorage.scheduling.events import StepFinished
from moorage.scheduling.placement import expected_state_bytes
from moorage.scheduling.records import ModelRecord
from moorage.scheduling.requests import Requests
from moorage.scheduling.runs import MayJoin, Runs
from moorage.scheduling.splitting import note_computed
from moorage.scheduling.state import DeviceRecord, State
from moorage.scheduling.states import States, going, next_step_bytes, staying


class Steps:
    """Decides about steps and states. A model takes one step at a time, over all its running requests."""

    def __init__(self, state: State, requests: Requests, runs: Runs, states: States) -> None:
        self._state = state
        self._requests = requests
        self._runs = runs
        self._states = states

    def needed_bytes(self, model: ModelRecord, first: Entry | None) -> int:
        """What the smallest next step takes: that of a running request, else of the one whose turn it is to join."""
        running = going(model)
        if running:
            return next_step_bytes(model, running[0])
        if first is None:
            return 0
        return self._workspace_bytes(model, first, first.request.rows) + self._joining_bytes(model, first)

    def _joining_bytes(self, model: ModelRecord, entry: Entry) -> int:
        """What its state may come to in its first step, or in the next one where it was suspended."""
        if entry.host is None:
            return expected_state_bytes(model)
        wanted_bytes = max(expected_state_bytes(model), entry.kept_bytes + model.measured.state_growth_bytes)
        limit_bytes = model.semaphore.limit_bytes
        if limit_bytes is None:
            return wanted_bytes
        # Within its limit it need not grow: it may have run to its end there, had it not given way.
        workspace_bytes = model.spec.memory.workspace_bytes(entry.request.rows)
        return max(entry.kept_bytes, min(wanted_bytes, limit_bytes - workspace_bytes))

    def start(self, model: ModelRecord, room_bytes: float, now: float, may_join: MayJoin | None = None) -> bool:
        """Begin the next step, with those who run and as many who wait as fit the room; whether anybody does."""
        self._make_rows(model, now)
        self._states.flush(model, now)
        if model.runs or model.state is not ModelState.RESIDENT:
            return False
        running = going(model)
        running = [entry for entry in running if entry.cohort][:1] or running
        members = self._fitting(model, running, [], room_bytes)
        joiners: list[Entry] = []
        if len(members) == len(running) and not any(entry.cohort for entry in members):
            waiting = model.queue if may_join is None else filter(may_join, model.queue)
            others = any(not entry.paused for entry in model.active.values())
            alone = others and _head_is_alone(model)
            joiners = [] if alone else self._fitting(model, waiting, members, room_bytes)
        if not members and not joiners:
            return False
        rows = sum(entry.request.rows for entry in members + joiners)
        lacks_memory = self._lacks_memory(model, running, members + joiners, may_join)
        workspace_bytes = self._workspace_bytes(model, (members + joiners)[0], rows)
        self._take_states(model, members, joiners)
        model.queue.left(joiners, now)
        starting = tuple(entry for entry in joiners if entry.host is None)
        resuming = tuple(entry for entry in joiners if entry.host is not None)
        self._runs.begin(model, members + joiners, rows, workspace_bytes, now, StepPlan(starting, resuming))
        if lacks_memory:
            self._put_out_paused(model, now)
        return True

    def _lacks_memory(
        self, model: ModelRecord, running: list[Entry], taken: list[Entry], may_join: MayJoin | None
    ) -> bool:
        """Whether the next who could have taken part in a step with these found room for its rows, and no other."""
        if taken[0].cohort or not any(entry.paused for entry in model.active.values()):
            return False
        waiting: Iterable[Entry] = (*running, *model.queue)
        following = next((entry for entry in waiting if entry not in taken), None)
        if following is None or following.cohort:
            return False
        if may_join is not None and not may_join(following):
            return False
        rows = sum(entry.request.rows for entry in (*taken, following))
        return rows <= max(1, model.spec.max_batch_size)

    def _put_out_paused(self, model: ModelRecord, now: float) -> bool:
        """Have its paused requests give way; whether there are any."""
        paused = [entry for entry in staying(model) if entry.paused and self._states.may_preempt(model, entry)]
        for entry in paused:
            self._states.give_way(model, entry, now)
        return bool(paused)

    def _fitting(
        self, model: ModelRecord, entries: Iterable[Entry], before: list[Entry], room_bytes: float
    ) -> list[Entry]:
        """The first of these that fit a step beside those before. Those before are running, or these are."""
        growth_bytes = model.measured.state_growth_bytes
        most_rows = max(1, model.spec.max_batch_size)
        fitting: list[Entry] = []
        rows = sum(entry.request.rows for entry in before)
        states_bytes = len(before) * growth_bytes
        for entry in entries:
            extra_bytes = growth_bytes if entry.state is not None else self._joining_bytes(model, entry)
            rows += entry.request.rows
            states_bytes += extra_bytes
            first = (before or fitting or [entry])[0]
            too_many = rows > most_rows and first is not entry
            if too_many or self._workspace_bytes(model, first, rows) + states_bytes > room_bytes:
                break
            fitting.append(entry)
            if entry.cohort:
                break
        return fitting

    def _workspace_bytes(self, model: ModelRecord, first: Entry, rows: int) -> int:
        """What a step of so many rows takes beside states. first: of its members."""
        if first.state is not None:
            beside_bytes = first.state.size_bytes + model.measured.state_growth_bytes
        else:
            beside_bytes = self._joining_bytes(model, first)
        return model.workspaces.bytes_for(rows, beside_bytes=beside_bytes)

    def _take_states(self, model: ModelRecord, members: list[Entry], joiners: list[Entry]) -> None:
        """Lease what the states may come to in this step."""
        device = self._state.device_of(model)
        self._state.end_first_run(model)
        for entry in members:
            assert entry.state is not None
            grown = device.budget.resize(entry.state, entry.state.size_bytes + model.measured.state_growth_bytes)
            assert grown
        for entry in joiners:
            model.queue.remove(entry)
            size_bytes = self._joining_bytes(model, entry)
            entry.state = device.budget.acquire(str(model.key), LeaseKind.STATE, size_bytes, model.semaphore)
            assert entry.state is not None
            model.active[entry.request.request_id] = entry

    def _make_rows(self, model: ModelRecord, now: float) -> None:
        """Where a step is full and somebody of higher priority waits, the last of the lowest priority gives way."""
        head, running = model.queue.head, going(model)
        rows = sum(entry.request.rows for entry in running)
        if head is None or not running or rows + head.request.rows <= max(1, model.spec.max_batch_size):
            return
        leaving: list[Entry] = []
        for entry in sorted(running, key=lambda entry: (-entry.priority, -entry.place)):
            if rows + head.request.rows <= max(1, model.spec.max_batch_size):
                break
            if entry.priority > head.priority and self._states.may_preempt(model, entry):
                leaving.append(entry)
                rows -= entry.request.rows
        if rows + head.request.rows <= max(1, model.spec.max_batch_size):
            for entry in leaving:
                self._states.give_way(model, entry, now)

    def squeeze(self, model: ModelRecord, device: DeviceRecord, now: float) -> None:
        """Running requests outgrew what there is for them: the paused ones give way, and then the last to come.

        One that is left takes its step in what room there is, and is given up where that is too little.
        """
        running = going(model)
        if any(entry.leaving is not None for entry in model.active.values()):
            return
        if self._put_out_paused(model, now) or not running:
            return
        if len(running) > 1:
            self._states.give_way(model, running[-1], now)
            return
        entry = running[0]
        assert entry.state is not None
        workspace_bytes = model.workspaces.bytes_for(entry.request.rows, beside_bytes=entry.state.size_bytes)
        if workspace_bytes <= min(device.budget.free_for(model.semaphore), model.semaphore.room_bytes):
            self._runs.begin(model, running, entry.request.rows, workspace_bytes, now, StepPlan((), ()))
            return
        what = f"a step of {entry.request.rows} rows of model '{model.key.name}'"
        error = device.budget.exhausted(what, workspace_bytes, device.budget.free_for(model.semaphore))
        self._requests.give_up(model, entry, error)
        self._states.flush(model, now)

    def finished(self, event: StepFinished, now: float) -> None:
        """A step came back: answer those who are done, and learn what the others keep."""
        run = self._runs.end(event.run_id, now)
        if run is None:
            return
        model = self._state.models[run.key]
        model.measured.step_s = _smoothed(model.measured.step_s, now - run.started_s)
        if event.peak_bytes is not None:
            self._runs.learn_peak(model, run, event.peak_bytes)
        for result in event.results:
            entry = model.active.get(result.request_id)
            if entry is not None:
                self._took_step(model, run, entry, result, now)

    def _took_step(self, model: ModelRecord, run: Run, entry: Entry, result: StepResult, now: float) -> None:
        if entry.leaving is None:
            self._states.release_host(model, entry)
        if not result.done and result.error is None:
            self._learn_state(model, entry, result.state_bytes)
            entry.steps += 1
            if result.outputs:
                self._answered(run, entry, result)
            return
        del model.active[entry.request.request_id]
        self._states.forget(model, entry)
        if not self._state.is_open(entry):
            return
        if result.error is not None:
            self._requests.note_out_of_memory(model, result.error)
            self._requests.fail_or_halve(model, entry, result.error, now)
        else:
            del self._state.entries[entry.request.request_id]
            note_computed(self._state, (entry,))
            self._state.actions.append(SucceedStepped(run, entry.request, result))

    def _answered(self, run: Run, entry: Entry, result: StepResult) -> None:
        """Some of the answer, unless the caller has got it from before the request began again."""
        entry.answers += 1
        if entry.answers > entry.sent and self._state.is_open(entry):
            entry.sent = entry.answers
            self._state.actions.append(Emit(run, entry.request, result))

    def _learn_state(self, model: ModelRecord, entry: Entry, state_bytes: int) -> None:
        assert entry.state is not None
        measured = model.measured
        if entry.steps:
            measured.state_growth_bytes = max(measured.state_growth_bytes, state_bytes - entry.kept_bytes)
        else:
            measured.state_bytes = max(measured.state_bytes or 0, state_bytes)
        entry.kept_bytes = state_bytes
        held_bytes = max(state_bytes, model.spec.memory.state_bytes or 0)
        self._state.device_of(model).budget.correct(entry.state, held_bytes)

    def lost(self, model: ModelRecord, reason: str, now: float) -> None:
        """The worker died, and every state with it. Those that were in a step are tried again a number of times."""
        run = model.run
        if run is not None and run.step is not None:
            self._runs.end(run.run_id, now)
            alive = self._runs.alive(run)
            self.forget_members(run)
            self._runs.retry(run, alive, reason)
        waiting = [entry for entry in model.active.values() if self._state.is_open(entry)]
        for entry in list(model.active.values()):
            self._states.forget(model, entry)
        model.active.clear()
        model.queue.put_back(waiting)
        for entry in (*model.queue, *model.parked.values()):
            self._states.release_host(model, entry)
            entry.begin_again()

    def forget_members(self, run: Run) -> None:
        """A step failed, and with it the states of its members: they are to be tried again from the beginning."""
        model = self._state.models[run.key]
        for entry in run.entries:
            if model.active.pop(entry.request.request_id, None) is not None:
                self._states.forget(model, entry)


def _head_is_alone(model: ModelRecord) -> bool:
    head = model.queue.head
    return head is not None and bool(head.cohort)


def _smoothed(before: float, latest: float) -> float:
    return latest if before == 0.0 else 0.8 * before + 0.2 * latest
