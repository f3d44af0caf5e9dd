"""Everything outside the scheduler, played honestly: processes, callers, time. It checks each action it performs."""

from dataclasses import replace

from moorage.domain.errors import LoadFailed, MoorageError
from moorage.domain.model import ModelKey, ModelSpec, ModelState
from moorage.domain.request import InferenceRequest, RehearsedRun, StepResult
from moorage.scheduling import actions, events
from moorage.scheduling.scheduler import Scheduler
from moorage.scheduling.state import DeviceLimits, Limits
from tests.properties.performing import Performing
from tests.properties.processes import Process
from tests.properties.promises import before, check, check_turns
from tests.support.scheduling import ANSWER, RESULT


def whole_of(request: InferenceRequest) -> InferenceRequest:
    """What its caller sent."""
    return request if request.piece is None else request.piece.whole


_TELL_OF_WHAT_IS_TAKEN = (events.CapacityChanged, events.StepFinished, events.ModelLoaded)


class World(Performing):
    """Performs what the scheduler decides; the methods let the outside do something."""

    def __init__(self, devices: dict[str, DeviceLimits], limits: Limits) -> None:
        super().__init__(Scheduler(devices, limits), devices)

    # What the outside does.

    def send(self, event: events.Event) -> None:
        self.sound = False
        was = before(self.scheduler.state)
        decided = self.scheduler.handle(event, self.now)
        for action in decided:
            self.perform(action)
        if isinstance(event, events.RequestCancelled) and event.request_id in self.waiting:
            self.answer(event.request_id, "cancelled")
        entries = self.scheduler.state.entries.values()
        assert {whole_of(entry.request).request_id for entry in entries} == set(self.waiting)
        excused = isinstance(event, _TELL_OF_WHAT_IS_TAKEN)
        check(self.scheduler, self.processes, was, excused=excused, now=self.now)
        began = [action.run.run_id for action in decided if isinstance(action, actions.Execute)]
        check_turns(self.scheduler, began, was, self.now)
        self.sound = True

    def register(self, key: ModelKey, spec: ModelSpec) -> None:
        self.specs[key] = spec
        self.send(events.ModelRegistered(key, spec))

    def load(self, key: ModelKey, *, may_evict: bool = True) -> None:
        self.loads_asked.add(key)
        self.send(events.LoadRequested(key, may_evict))
        self._note_new_load(key)

    def _note_new_load(self, key: ModelKey) -> None:
        """One that began just after an earlier one had timed out, in the same step."""
        model = self.scheduler.state.models.get(key)
        if model is not None and model.wanted:
            self.loads_asked.add(key)

    def unload(self, key: ModelKey) -> None:
        self.unloads_asked.add(key)
        self.send(events.UnloadRequested(key))

    def arrive(self, request: InferenceRequest) -> None:
        self.waiting[request.request_id] = request
        self.send(events.RequestsArrived((request,)))

    def cancel(self, request_id: int) -> None:
        self.send(events.RequestCancelled(request_id))

    def pause(self, request_id: int) -> None:
        self.send(events.RequestPaused(request_id))

    def resume(self, request_id: int) -> None:
        self.send(events.RequestResumed(request_id))

    @property
    def paused(self) -> list[int]:
        """Requests whose callers don't read."""
        entries = self.scheduler.state.entries.values()
        return sorted({whole_of(entry.request).request_id for entry in entries if entry.paused})

    def hold(self, hold_id: int, device: str, size_bytes: int, priority: int, patience_s: float) -> None:
        self.holds_asked.add(hold_id)
        self.send(events.HoldRequested(hold_id, device, size_bytes, priority, self.now + patience_s))

    def let_go(self, hold_id: int) -> None:
        self.holds_asked.discard(hold_id)
        self.holds.discard(hold_id)
        self.send(events.HoldReleased(hold_id))

    def come_up(self, name: str) -> None:
        self.processes[name].up = True
        self.send(events.WorkerUp(name))

    def die(self, name: str) -> None:
        for run in self.processes.pop(name).runs.values():
            model = self.scheduler.state.models[run.key]
            if not model.killed:
                self.losses.update(entry.request.request_id for entry in run.entries)
        self.just_died = name
        self.send(events.WorkerLost(name, "it died"))
        self.just_died = None

    def finish_load(self, name: str, weights_bytes: int) -> None:
        process = self.processes[name]
        key = process.building
        assert key is not None
        process.building, process.warming_bytes = None, 0
        # What is beyond the estimate shows only now: it is held against the ledger if the model stays.
        process.weights[key] = min(weights_bytes, process.weights[key])
        spec = self.specs[key]
        stepped, offloads = spec.simulated.steps > 1, bool(spec.parameters["offloads"])
        rehearsed = tuple(RehearsedRun(run.rows, 1, seconds=0.1 * run.rows) for run in spec.warmup if not stepped)
        self.send(events.ModelLoaded(key, weights_bytes, 1.0, stepped, offloads, rehearsed))
        model = self.scheduler.state.models.get(key)
        if model is not None and model.state is ModelState.RESIDENT:
            process.weights[key] = weights_bytes

    def fail_load(self, name: str) -> None:
        process = self.processes[name]
        key = process.building
        assert key is not None
        process.building, process.warming_bytes = None, 0
        del process.weights[key]
        self.send(events.ModelLoadFailed(key, LoadFailed(key.name, "it does not build")))

    def finish_move(self, name: str, key: ModelKey, retained_bytes: int = 0) -> None:
        """A model has done what it was told to: it is unloaded, offloaded or restored."""
        process = self.processes[name]
        move = process.moving.pop(key)
        if move == "restore":
            process.host.pop(key)
            self.send(events.ModelRestored(key, 0.5))
        elif move == "offload":
            whole_bytes = process.host[key] = process.weights.pop(key)
            if retained_bytes:
                retained_bytes = process.weights[key] = min(retained_bytes, whole_bytes)
            self.send(events.ModelOffloaded(key, retained_bytes))
        else:
            retained_bytes = min(retained_bytes, process.weights.pop(key, 0))
            process.host.pop(key, None)
            process.forget_states(key)
            if retained_bytes:
                process.context_bytes += retained_bytes
            self.send(events.ModelUnloaded(key, retained_bytes))

    def fail_move(self, name: str, key: ModelKey) -> None:
        """A model could not be offloaded or restored."""
        process = self.processes[name]
        move = process.moving.pop(key)
        if move == "restore":
            self.send(events.ModelRestoreFailed(key, LoadFailed(key.name, "it does not come back")))
        else:
            self.send(events.ModelOffloadFailed(key))

    def finish_leaving(self, name: str, owner: tuple[ModelKey, int]) -> None:
        """A state that was to go has gone."""
        process = self.processes[name]
        key, request_id = owner
        if process.leaving.pop(owner) == "suspend":
            process.parked[owner] = process.states.pop(owner)
            self.send(events.StatesSuspended(key, (request_id,)))
        else:
            process.states.pop(owner, None)
            process.parked.pop(owner, None)
            self.send(events.StatesDropped(key, (request_id,)))

    def finish_run(self, name: str, run_id: int, peak_bytes: int | None = None) -> None:
        process = self.processes[name]
        run = process.runs.pop(run_id)
        if run.step is not None:
            results = tuple(self._take_step(process, run.key, entry.request.request_id) for entry in run.entries)
            self.send(events.StepFinished(run_id, results, peak_bytes))
            return
        self.finished_run = run_id
        self.send(events.RunFinished(run_id, replace(RESULT, peak_bytes=peak_bytes)))
        assert self.finished_run is None, "a run's result was ignored"

    def _take_step(self, process: Process, key: ModelKey, request_id: int) -> StepResult:
        spec = self.specs[key]
        self.steps_done[request_id] += 1
        if self.steps_done[request_id] >= spec.simulated.steps:
            del process.states[key, request_id]
            self.done.add(request_id)
            return StepResult(request_id, done=True, state_bytes=0)
        grown_bytes = process.states[key, request_id] + int(spec.parameters["growth"])
        process.states[key, request_id] = grown_bytes
        outputs = (ANSWER,) if spec.decoupled else ()
        return StepResult(request_id, done=False, state_bytes=grown_bytes, outputs=outputs)

    def fail_run(self, name: str, run_id: int, error: MoorageError) -> None:
        process = self.processes[name]
        run = process.runs.pop(run_id)
        for entry in run.entries:
            process.states.pop((run.key, entry.request.request_id), None)
        self.send(events.RunFailed(run_id, error))

    def wake(self) -> None:
        self.now = max(self.now, self.scheduler.next_wake_s or 0.0)
        self.send(events.TimeReached())

    # Letting it come to rest.

    def answer_everything(self) -> None:
        """Let every process do what it was told, without time passing, until nobody has anything to do."""
        for _ in range(10_000):
            if not any(self._answer_one(name, process) for name, process in list(self.processes.items())):
                return
        raise AssertionError("it does not come to rest")

    def answer_moves(self) -> None:
        """Likewise, but that runs go on."""
        for _ in range(10_000):
            if not any(self._answer_one(name, it, runs=False) for name, it in list(self.processes.items())):
                return
        raise AssertionError("it does not come to rest")

    def _answer_one(self, name: str, process: Process, *, runs: bool = True) -> bool:
        if process.told_to_end:
            self.die(name)
        elif not process.up:
            self.come_up(name)
        elif process.building is not None:
            self.finish_load(name, process.weights[process.building])
        elif process.runs and runs:
            self.finish_run(name, next(iter(process.runs)))
        elif process.leaving:
            self.finish_leaving(name, next(iter(process.leaving)))
        elif process.moving:
            self.finish_move(name, next(iter(process.moving)))
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
