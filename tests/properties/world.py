"""Everything outside the scheduler, played honestly: processes, callers, time. It checks each action it performs."""

from collections import Counter

from moorage.domain.errors import DeadlineExceeded, InferenceFailed, LoadFailed
from moorage.domain.model import ModelKey, ModelSpec, ModelState
from moorage.domain.request import InferenceRequest
from moorage.scheduling import actions, events
from moorage.scheduling.scheduler import Scheduler
from moorage.scheduling.state import DeviceLimits, Limits
from tests.properties.promises import Process, check, check_turn
from tests.support.scheduling import RESULT


class World:
    """Performs what the scheduler decides; the methods let the outside do something."""

    def __init__(self, devices: dict[str, DeviceLimits], limits: Limits) -> None:
        self.scheduler = Scheduler(devices, limits)
        self.devices = devices
        self.now = 0.0
        self.processes: dict[str, Process] = {}
        self.specs: dict[ModelKey, ModelSpec] = {}
        self.waiting: dict[int, InferenceRequest] = {}
        self.answers: dict[int, str] = {}
        self.loads_asked: set[ModelKey] = set()
        self.loads_implied: set[ModelKey] = set()
        self.unloads_asked: set[ModelKey] = set()
        self.losses: Counter[int] = Counter()
        self.finished_run: int | None = None
        self.just_died: str | None = None
        self.sound = True

    # What the outside does.

    def send(self, event: events.Event) -> None:
        self.sound = False
        lines = {device: list(line) for device, line in self.scheduler.state.short_of_memory.items()}
        for action in self.scheduler.handle(event, self.now):
            self._perform(action)
            if isinstance(action, actions.Execute):
                check_turn(self.scheduler.state, action.run, lines)
        if isinstance(event, events.RequestCancelled) and event.request_id in self.waiting:
            self._answer(event.request_id, "cancelled")
        assert set(self.scheduler.state.entries) == set(self.waiting)
        check(self.scheduler, self.processes)
        self.sound = True

    def register(self, key: ModelKey, spec: ModelSpec) -> None:
        self.specs[key] = spec
        self.send(events.ModelRegistered(key, spec))

    def load(self, key: ModelKey) -> None:
        self.loads_asked.add(key)
        self.send(events.LoadRequested(key))
        self._note_new_load(key, self.loads_asked)

    def unload(self, key: ModelKey) -> None:
        self.unloads_asked.add(key)
        self.send(events.UnloadRequested(key))

    def arrive(self, request: InferenceRequest) -> None:
        self.waiting[request.request_id] = request
        model = self.scheduler.state.models.get(request.model)
        if model is not None and model.state is ModelState.UNLOADED:
            self.loads_implied.add(request.model)
        self.send(events.RequestsArrived((request,)))
        self._note_new_load(request.model, self.loads_implied)

    def _note_new_load(self, key: ModelKey, loads: set[ModelKey]) -> None:
        """One that began just after an earlier one had timed out, in the same step."""
        model = self.scheduler.state.models.get(key)
        if model is not None and model.wanted:
            loads.add(key)

    def cancel(self, request_id: int) -> None:
        self.send(events.RequestCancelled(request_id))

    def come_up(self, name: str) -> None:
        self.processes[name].up = True
        self.send(events.WorkerUp(name))

    def die(self, name: str) -> None:
        for run in self.processes.pop(name).runs.values():
            self.losses.update(entry.request.request_id for entry in run.entries)
        self.just_died = name
        self.send(events.WorkerLost(name, "it died"))
        self.just_died = None

    def finish_load(self, name: str, weights_bytes: int) -> None:
        process = self.processes[name]
        key = process.building
        assert key is not None
        process.building = None
        # What is beyond the estimate shows only now: it is held against the ledger if the model stays.
        process.weights[key] = min(weights_bytes, process.weights[key])
        self.send(events.ModelLoaded(key, weights_bytes))
        model = self.scheduler.state.models.get(key)
        if model is not None and model.state is ModelState.RESIDENT:
            process.weights[key] = weights_bytes

    def fail_load(self, name: str) -> None:
        process = self.processes[name]
        key = process.building
        assert key is not None
        process.building = None
        del process.weights[key]
        self.send(events.ModelLoadFailed(key, LoadFailed(key.name, "it does not build")))

    def finish_unload(self, name: str, key: ModelKey) -> None:
        self.processes[name].unloading.remove(key)
        del self.processes[name].weights[key]
        self.send(events.ModelUnloaded(key))

    def finish_run(self, name: str, run_id: int) -> None:
        del self.processes[name].runs[run_id]
        self.finished_run = run_id
        self.send(events.RunFinished(run_id, RESULT))
        assert self.finished_run is None, "a run's result was ignored"

    def fail_run(self, name: str, run_id: int) -> None:
        run = self.processes[name].runs.pop(run_id)
        self.send(events.RunFailed(run_id, InferenceFailed(run.key.name, "id")))

    def wake(self) -> None:
        self.now = max(self.now, self.scheduler.next_wake_s or 0.0)
        self.send(events.TimeReached())

    # What the scheduler has it do.

    def _perform(self, action: actions.Action) -> None:
        match action:
            case actions.Execute(run):
                self._execute(run)
            case actions.Succeed(run):
                assert run.run_id == self.finished_run
                self.finished_run = None
                for entry in run.entries:
                    if entry.request.request_id in self.waiting:
                        self._answer(entry.request.request_id, "succeeded")
            case actions.Fail(request, error):
                assert not isinstance(error, DeadlineExceeded) or request.deadline_s <= self.now
                self._answer(request.request_id, "failed")
            case actions.LoadSettled(key, error):
                self._load_settled(key, resident=error is None)
            case actions.UnloadSettled(key):
                self.unloads_asked.remove(key)
                assert key not in self.scheduler.state.models
                assert not any(key in process.weights for process in self.processes.values())
            case actions.ModelChanged():
                pass
            case _:
                self._perform_on_worker(action)

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
                process.told_to_end = True
            case actions.KillWorker(name):
                assert not self.processes[name].told_to_end
                self.processes[name].told_to_end = True
            case actions.Load(key, _, name):
                lease = self.scheduler.state.models[key].weights
                assert lease is not None
                process = self.processes[name]
                assert process.up
                assert not process.told_to_end
                assert process.building is None
                process.building = key
                process.weights[key] = lease.size_bytes
            case actions.Unload(key, name):
                process = self.processes[name]
                assert key in process.weights
                assert all(run.key != key for run in process.runs.values())
                process.unloading.add(key)
            case _:
                raise AssertionError(action)

    def _execute(self, run: actions.Run) -> None:
        process = self.processes[run.worker]
        spec = self.specs[run.key]
        requests = [entry.request for entry in run.entries]
        assert process.up
        assert not process.told_to_end
        assert run.key in process.weights
        assert run.key != process.building
        assert run.key not in process.unloading
        assert self.scheduler.state.models[run.key].state is ModelState.RESIDENT
        assert all(other.key != run.key for other in process.runs.values())
        assert run.rows == sum(request.rows for request in requests)
        assert run.rows <= max(1, spec.max_batch_size)
        assert run.workspace.size_bytes == spec.memory.workspace_bytes(run.rows)
        assert len(requests) == 1 or requests[0].batch_key is not None
        assert len({request.batch_key for request in requests}) == 1
        assert all(request.deadline_s > self.now for request in requests)
        first_come = [request for request in self.waiting.values() if request.model == run.key]
        assert requests == first_come[: len(requests)]
        assert all(self.losses[it.request_id] < self.scheduler.state.limits.max_attempts for it in requests)
        process.runs[run.run_id] = run

    def _load_settled(self, key: ModelKey, *, resident: bool) -> None:
        assert key in self.loads_asked | self.loads_implied
        self.loads_asked.discard(key)
        self.loads_implied.discard(key)
        if resident:
            assert self.scheduler.state.models[key].state is not ModelState.LOADING

    def _answer(self, request_id: int, answer: str) -> None:
        assert request_id not in self.answers
        del self.waiting[request_id]
        self.answers[request_id] = answer

    # Letting it come to rest.

    def answer_everything(self) -> None:
        """Let every process do what it was told, without time passing, until nobody has anything to do."""
        for _ in range(10_000):
            if not any(self._answer_one(name, process) for name, process in list(self.processes.items())):
                return
        raise AssertionError("it does not come to rest")

    def _answer_one(self, name: str, process: Process) -> bool:
        if process.told_to_end:
            self.die(name)
        elif not process.up:
            self.come_up(name)
        elif process.building is not None:
            self.finish_load(name, process.weights[process.building])
        elif process.runs:
            self.finish_run(name, next(iter(process.runs)))
        elif process.unloading:
            self.finish_unload(name, next(iter(process.unloading)))
        else:
            return False
        return True

    def come_to_rest(self) -> None:
        """Answer everything and let time pass, until nothing is left to wait for."""
        self.answer_everything()
        for _ in range(10_000):
            if self.scheduler.next_wake_s is None:
                return
            self.wake()
            self.answer_everything()
        raise AssertionError("it never stops asking to be woken")
