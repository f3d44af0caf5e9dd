"""What workers may do at any moment: what they were told, or not."""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from moorage.domain.errors import DeviceLost, InferenceFailed, MemoryExhausted, MoorageError, OutOfMemory
from moorage.domain.model import ModelKey
from moorage.scheduling import events
from tests.properties.processes import Process
from tests.properties.strategies import KEYS, peaks
from tests.properties.world import World
from tests.support.scheduling import RESULT

INFERENCE_FAILED = InferenceFailed("any", "id")
DEVICE_LOST = DeviceLost("any", "id")
NO_MEMORY = MemoryExhausted("a run", device="its device", needed_bytes=0, free_bytes=0)
OUT_OF_MEMORY = OutOfMemory("a run")
RUN_ERRORS = (INFERENCE_FAILED, NO_MEMORY, OUT_OF_MEMORY, OUT_OF_MEMORY, DEVICE_LOST)


def _has(process: Process, having: dict[str, bool]) -> bool:
    facts = {
        "starting": not process.up,
        "told_to_end": process.told_to_end,
        "building": process.building is not None,
        "moving": bool(process.moving) and not process.told_to_end,
        "shuttling": any(move != "unload" for move in process.moving.values()) and not process.told_to_end,
        "leaving": bool(process.leaving) and not process.told_to_end,
        "running": bool(process.runs),
    }
    return all(facts[name] == wanted for name, wanted in having.items())


def _any(machine: Any, **having: bool) -> bool:
    return any(_has(process, having) for process in machine.world.processes.values())


class WorkerRules(RuleBasedStateMachine):
    """The world has been made by whoever inherits this."""

    world: World

    def some(self, data: st.DataObject, **having: bool) -> str:
        """The name of a process that has all these."""
        return data.draw(st.sampled_from([name for name, it in self.world.processes.items() if _has(it, having)]))

    @precondition(lambda self: _any(self, starting=True))
    @rule(data=st.data())
    def come_up(self, data: st.DataObject) -> None:
        self.world.come_up(self.some(data, starting=True))

    @precondition(lambda self: bool(self.world.processes))
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        self.world.die(self.some(data))

    @precondition(lambda self: _any(self, told_to_end=True))
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        self.world.die(self.some(data, told_to_end=True))

    @precondition(lambda self: _any(self, building=True))
    @rule(data=st.data(), more_bytes=st.sampled_from([0, 0, 0, 1, 5, 40]))
    def finish_load(self, data: st.DataObject, more_bytes: int) -> None:
        name = self.some(data, building=True)
        process = self.world.processes[name]
        assert process.building is not None
        self.world.finish_load(name, process.weights[process.building] + more_bytes)

    @precondition(lambda self: _any(self, building=True))
    @rule(data=st.data())
    def finish_load_too_large(self, data: st.DataObject) -> None:
        name = self.some(data, building=True)
        process = self.world.processes[name]
        assert process.building is not None
        free_bytes = self.world.scheduler.state.devices[process.device].budget.free_bytes
        self.world.finish_load(name, process.weights[process.building] + free_bytes + 1)

    @precondition(lambda self: _any(self, building=True))
    @rule(data=st.data(), weights_bytes=st.integers(0, 5))
    def finish_small_load(self, data: st.DataObject, weights_bytes: int) -> None:
        self.world.finish_load(self.some(data, building=True), weights_bytes)

    @precondition(lambda self: _any(self, building=True))
    @rule(data=st.data())
    def fail_load(self, data: st.DataObject) -> None:
        self.world.fail_load(self.some(data, building=True))

    @precondition(lambda self: _any(self, building=True, told_to_end=False))
    @rule(data=st.data())
    def never_finish_load(self, data: st.DataObject) -> None:
        key = self.world.processes[self.some(data, building=True, told_to_end=False)].building
        assert key is not None
        self.world.now = max(self.world.now, self.world.scheduler.state.models[key].load_deadline_s)
        self.world.send(events.TimeReached())

    @precondition(lambda self: _any(self, moving=True))
    @rule(data=st.data(), retained_bytes=st.sampled_from([0, 0, 0, 0, 1, 30]))
    def finish_move(self, data: st.DataObject, retained_bytes: int) -> None:
        name = self.some(data, moving=True)
        key = data.draw(st.sampled_from(sorted(self.world.processes[name].moving)))
        self.world.finish_move(name, key, retained_bytes)

    @precondition(lambda self: _any(self, shuttling=True))
    @rule(data=st.data())
    def fail_move(self, data: st.DataObject) -> None:
        name = self.some(data, shuttling=True)
        moving = self.world.processes[name].moving
        self.world.fail_move(name, data.draw(st.sampled_from(sorted(key for key in moving if moving[key] != "unload"))))

    @precondition(lambda self: _any(self, moving=True))
    @rule()
    def never_finish_move(self) -> None:
        self.world.now += self.world.scheduler.state.limits.max_unload_s
        self.world.send(events.TimeReached())

    @precondition(lambda self: _any(self, leaving=True))
    @rule(data=st.data())
    def finish_leaving(self, data: st.DataObject) -> None:
        name = self.some(data, leaving=True)
        self.world.finish_leaving(name, data.draw(st.sampled_from(sorted(self.world.processes[name].leaving))))

    @precondition(lambda self: _any(self, running=True))
    @rule(data=st.data())
    def finish_run(self, data: st.DataObject) -> None:
        name = self.some(data, running=True)
        run_id = data.draw(st.sampled_from(list(self.world.processes[name].runs)))
        self.world.finish_run(name, run_id, data.draw(peaks))

    @precondition(lambda self: _any(self, running=True))
    @rule(data=st.data(), error=st.sampled_from(RUN_ERRORS))
    def fail_run(self, data: st.DataObject, error: MoorageError) -> None:
        name = self.some(data, running=True)
        self.world.fail_run(name, data.draw(st.sampled_from(list(self.world.processes[name].runs))), error)

    @rule(run_id=st.integers(1, 3), key=st.sampled_from(KEYS))
    def say_what_nobody_awaits(self, run_id: int, key: ModelKey) -> None:
        """Late words of a process that is known to have died; and names that mean nothing."""
        if run_id not in self.world.scheduler.state.runs:
            self.world.send(events.RunFinished(run_id, RESULT))
        processes = self.world.processes.values()
        if not any(key in process.weights or key in process.host for process in processes):
            self.world.send(events.ModelLoaded(key, 5))
            self.world.send(events.ModelUnloaded(key))
            self.world.send(events.ModelOffloaded(key))
            self.world.send(events.ModelRestored(key))
        self.world.send(events.StatesSuspended(key, (99_999,)))
        self.world.send(events.StatesDropped(key, (99_999,)))
        self.world.send(events.HoldReleased(99_999))
        self.world.send(events.WorkerUp("nobody"))
        self.world.send(events.WorkerLost("nobody", "it died"))
