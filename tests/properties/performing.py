"""The world's half that does what the scheduler decides, and finds fault with it."""

from collections import Counter, defaultdict
from collections.abc import Sequence

from moorage.domain.errors import DeadlineExceeded, DeadlineUnmeetable, Preempted
from moorage.domain.model import ModelKey, ModelSpec, ModelState
from moorage.domain.request import InferenceRequest, Piece, StepResult
from moorage.scheduling import actions
from moorage.scheduling.entries import Entry
from moorage.scheduling.scheduler import Scheduler
from moorage.scheduling.state import DeviceLimits
from tests.properties.processes import Process


class Performing:
    """What there is outside, and what becomes of it by the scheduler's actions."""

    def __init__(self, scheduler: Scheduler, devices: dict[str, DeviceLimits]) -> None:
        self.scheduler = scheduler
        self.devices = devices
        self.now = 0.0
        self.processes: dict[str, Process] = {}
        self.specs: dict[ModelKey, ModelSpec] = {}
        self.waiting: dict[int, InferenceRequest] = {}
        self.answers: dict[int, str] = {}
        self.computed_rows: defaultdict[int, set[int]] = defaultdict(set)
        self.loads_asked: set[ModelKey] = set()
        self.unloads_asked: set[ModelKey] = set()
        self.holds_asked: set[int] = set()
        self.holds: set[int] = set()
        self.losses: Counter[int] = Counter()
        self.steps_done: defaultdict[int, int] = defaultdict(int)
        self.sent: Counter[int] = Counter()
        self.done: set[int] = set()
        self.finished_run: int | None = None
        self.just_died: str | None = None
        self.sound = True

    def perform(self, action: actions.Action) -> None:
        match action:
            case actions.Succeed(run):
                assert run.run_id == self.finished_run
                self.finished_run = None
                for entry in run.entries:
                    self._computed(entry.request)
            case actions.SucceedStepped(run, request, result):
                assert result.done
                assert request.request_id in self.done
                assert request in [entry.request for entry in run.entries]
                spec = self.specs[request.model]
                assert self.sent[request.request_id] == (spec.simulated.steps - 1 if spec.decoupled else 0)
                self._computed(request)
            case actions.Emit(run, request, result):
                self._emitted(run, request, result)
            case actions.Fail(request, error):
                if isinstance(error, DeadlineUnmeetable):
                    takes_s = error.wait_s + error.load_s + error.run_s + error.answer_s
                    assert request.deadline_s < self.now + takes_s + 1e-9, "it could have been answered in time"
                elif isinstance(error, DeadlineExceeded | Preempted):
                    assert request.deadline_s <= self.now
                self.answer(request.request_id, "failed")
            case actions.LoadSettled() | actions.UnloadSettled() | actions.HoldSettled():
                self._settle(action)
            case actions.ModelChanged():
                pass
            case _:
                self._perform_on_worker(action)

    def _emitted(self, run: actions.Run, request: InferenceRequest, result: StepResult) -> None:
        """A part of the answer comes once, and in order, however often its request began again."""
        assert result.outputs
        assert not result.done
        assert request in [entry.request for entry in run.entries]
        assert request.request_id in self.waiting
        self.sent[request.request_id] += 1
        assert self.sent[request.request_id] == self.steps_done[request.request_id]

    def _computed(self, request: InferenceRequest) -> None:
        """A request is answered when it is computed, or the last of its pieces is."""
        whole, first_row = request.piece or Piece(request, 0)
        if whole.request_id in self.waiting:
            rows = self.computed_rows[whole.request_id]
            assert not rows & set(range(first_row, first_row + request.rows)), "rows were computed twice"
            rows.update(range(first_row, first_row + request.rows))
            if len(rows) == whole.rows:
                self.answer(whole.request_id, "succeeded")

    def _settle(self, action: actions.LoadSettled | actions.UnloadSettled | actions.HoldSettled) -> None:
        match action:
            case actions.LoadSettled(key, _):
                # Two may end in one event: one whose time was over, and one that was asked for just now.
                self.loads_asked.discard(key)
            case actions.UnloadSettled(key):
                self.unloads_asked.remove(key)
                assert key not in self.scheduler.state.models
                assert not any(model.understudy_of == key for model in self.scheduler.state.models.values())
                assert not any(key in process.weights for process in self.processes.values())
            case actions.HoldSettled(hold_id, error):
                self.holds_asked.discard(hold_id)
                if error is None:
                    self.holds.add(hold_id)

    def answer(self, request_id: int, answer: str) -> None:
        assert request_id not in self.answers
        del self.waiting[request_id]
        self.answers[request_id] = answer

    def _perform_on_worker(self, action: actions.Action) -> None:
        match action:
            case actions.StartWorker(name, device):
                assert name not in self.processes
                self.processes[name] = Process(device, self.devices[device].context_bytes)
            case actions.StopWorker(name) | actions.KillWorker(name) if name == self.just_died:
                pass  # decided by the clock, just before the news was taken in
            case actions.StopWorker(name):
                process = self.processes[name]
                assert not process.told_to_end
                assert not process.runs
                assert not process.weights
                assert not process.host
                process.told_to_end = True
            case actions.KillWorker(name):
                assert not self.processes[name].told_to_end
                self.processes[name].told_to_end = True
            case actions.Execute(run):
                self._execute(run)
            case actions.Suspend(key, name, request_ids):
                self._send_states_away(key, self.processes[name], request_ids, "suspend")
            case actions.Drop(key, name, request_ids):
                self._send_states_away(key, self.processes[name], request_ids, "drop")
            case _ if self.just_died is not None and getattr(action, "worker", None) == self.just_died:
                pass
            case _:
                self._move(action)

    def _send_states_away(self, key: ModelKey, process: Process, request_ids: tuple[int, ...], way: str) -> None:
        assert not process.runs_of(key), "a step computes with them"
        for request_id in request_ids:
            owner = (key, request_id)
            assert owner not in process.leaving
            assert owner in process.states or (way == "drop" and owner in process.parked)
            process.leaving[owner] = way

    def _move(self, action: actions.Action) -> None:
        match action:
            case actions.Load(key, spec, name):
                lease = self.scheduler.state.models[key].weights
                assert lease is not None
                process = self.processes[name]
                if key.is_understudy:
                    self.specs[key] = spec  # nobody registered it
                assert process.up
                assert not process.told_to_end
                assert process.building is None
                assert key not in process.weights
                process.building = key
                process.weights[key] = lease.size_bytes
                process.warming_bytes = self._warming_bytes(key, spec)
            case actions.Unload(key, name):
                self._begin_move(key, name, "unload")
            case actions.Offload(key, name):
                process = self._begin_move(key, name, "offload")
                assert not any(owner[0] == key for owner in process.states)
            case actions.Restore(key, name):
                lease = self.scheduler.state.models[key].weights
                assert lease is not None
                process = self._begin_move(key, name, "restore")
                assert key in process.host
                process.weights[key] = lease.size_bytes
            case _:
                raise AssertionError(action)

    def _warming_bytes(self, key: ModelKey, spec: ModelSpec) -> int:
        """What the largest run of the model's warm-up takes; it is leased, if it is to be done."""
        if not spec.warmup:
            return 0
        model = self.scheduler.state.models[key]
        state_bytes = max(spec.memory.state_bytes or 0, model.measured.state_bytes or 0)
        taken_bytes = spec.memory.workspace_bytes(max(run.rows for run in spec.warmup)) + state_bytes
        assert taken_bytes <= (model.first_run.size_bytes if model.first_run is not None else 0)
        return taken_bytes

    def _begin_move(self, key: ModelKey, name: str, move: str) -> Process:
        process = self.processes[name]
        assert not process.told_to_end
        assert key in process.weights or key in process.host
        assert key not in process.moving
        assert not process.runs_of(key)
        process.moving[key] = move
        return process

    def _execute(self, run: actions.Run) -> None:
        process = self.processes[run.worker]
        spec = self.specs[run.key]
        requests = [entry.request for entry in run.entries]
        assert process.up
        assert not process.told_to_end
        assert run.key in process.weights
        assert run.key != process.building
        assert run.key not in process.moving
        assert self.scheduler.state.models[run.key].state is ModelState.RESIDENT
        self._in_an_instance(process, run)
        assert run.rows == sum(request.rows for request in requests)
        assert run.rows <= max(1, spec.max_batch_size)
        workspaces = self.scheduler.state.models[run.key].workspaces
        assert run.workspace.size_bytes >= spec.memory.workspace_bytes(run.rows)
        if run.step is None:
            row_bytes = max(request.row_bytes for request in requests)
            assert run.workspace.size_bytes == workspaces.bytes_for(run.rows, row_bytes)
        assert all(request.deadline_s > self.now for request in requests)
        assert all(self.losses[it.request_id] < self.scheduler.state.limits.max_attempts for it in requests)
        on_device = [other for process in self.processes.values() for other in process.runs.values()]
        in_use = sum(other.workspace.device == run.workspace.device for other in on_device)
        assert in_use < self.devices[run.workspace.device].run_slots
        if run.step is None:
            assert spec.simulated.steps == 1
            assert len(requests) == 1 or requests[0].batch_key is not None
            assert len({request.batch_key for request in requests}) == 1
            assert len(requests) == 1 or _input_bytes(requests) <= self.scheduler.state.limits.max_input_bytes
            self._in_turn(run)
        else:
            self._begin_step(process, run, run.step)
        process.runs[run.run_id] = run

    def _in_an_instance(self, process: Process, run: actions.Run) -> None:
        """No two runs in one; and who is tried again, or may have killed a worker, has none of the model beside it."""
        beside = process.runs_of(run.key)
        assert run.instance in range(self.specs[run.key].instances)
        assert run.instance not in [other.instance for other in beside]
        if beside:
            entries = [entry for other in (run, *beside) for entry in other.entries]
            assert not any(entry.cohort or self.losses[entry.request.request_id] for entry in entries)

    def _in_turn(self, run: actions.Run) -> None:
        """A batch is of the highest priority of those who came first: nobody of its like is passed over for it, and
        nobody at all for the first in it. Who is tried again with others is of their like, and of nobody else's."""
        for entry in self.scheduler.state.models[run.key].queue:
            first = run.entries[0]
            key = entry.request.batch_key
            alike = entry.cohort == first.cohort and key is not None and key == first.request.batch_key
            self._after(entry, run.entries if alike else run.entries[:1])

    def _after(self, entry: Entry, members: Sequence[Entry]) -> None:
        """Somebody who still waits stands behind all of these."""
        queue = self.scheduler.state.models[entry.request.model].queue
        last = max(member.place for member in members)
        # Age gives nobody a right against higher priority where memory is short.
        highest = min(member.priority for member in members)
        assert queue.place_of(entry) >= last or entry.priority > highest, "somebody was passed over"
        for member in members:
            same = entry.priority == member.priority
            assert not same or _turn(member) <= _turn(entry), "an earlier deadline was passed over"

    def _begin_step(self, process: Process, run: actions.Run, step: actions.StepPlan) -> None:
        fresh = (*step.starting, *step.resuming)
        assert not any(entry.paused for entry in run.entries), "its caller does not read"
        for entry in run.entries:
            owner = (run.key, entry.request.request_id)
            assert (owner in process.states) == (entry not in fresh)
            assert owner not in process.leaving
        for entry in step.starting:
            assert entry.state is not None
            self.steps_done[entry.request.request_id] = 0
            process.states[run.key, entry.request.request_id] = self.specs[run.key].simulated.state_bytes
        for entry in step.resuming:
            owner = (run.key, entry.request.request_id)
            process.states[owner] = process.parked.pop(owner)


def _input_bytes(requests: list[InferenceRequest]) -> int:
    """Of a run, once its inputs are padded."""
    longest = max((request.padded[0][1] for request in requests if request.padded), default=0)
    own_bytes = sum(request.rows * request.padded[0][1] for request in requests if request.padded)
    padded_bytes = sum(request.rows for request in requests) * longest
    return sum(request.size_bytes for request in requests) - own_bytes + padded_bytes


def _turn(entry: Entry) -> tuple[bool, float, float]:
    """In the order of these values should those of a priority have their turns."""
    if entry.has_begun:
        return False, 0.0, 0.0
    return True, entry.request.deadline_s, entry.request.arrived_s
