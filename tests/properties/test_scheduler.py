"""The whole scheduler against a world in which anything may happen at any moment."""

from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from moorage.domain.model import Isolation, Loading, ModelKey, ModelSpec, ModelState, QueuePolicy
from moorage.scheduling import events
from moorage.scheduling.state import DeviceLimits, Limits
from tests.properties.promises import Process
from tests.properties.world import World
from tests.support.scheduling import RESULT, make_request, make_spec

KEYS = [ModelKey("a", 1), ModelKey("b", 1), ModelKey("b", 1, generation=1), ModelKey("c", 1), ModelKey("d", 1)]

# Of everything there is as much as lets models work together, and sometimes not quite.
devices = st.builds(DeviceLimits, capacity_bytes=st.integers(20, 60), context_bytes=st.sampled_from([0, 0, 3, 12]))
limits = st.builds(
    Limits, max_attempts=st.integers(1, 3), max_load_crashes=st.integers(1, 3), max_input_bytes=st.integers(4, 40)
)
specs = st.builds(
    make_spec,
    weights=st.none() | st.integers(0, 12) | st.integers(0, 40),
    hint=st.integers(0, 15),
    fixed=st.sampled_from([0, 0, 1, 5, 20]),
    per_row=st.sampled_from([0, 1, 4]),
    max_batch_size=st.sampled_from([0, 1, 4, 8]),
    loading=st.sampled_from(Loading),
    isolation=st.sampled_from([Isolation.SHARED, Isolation.SHARED, Isolation.DEDICATED]),
    devices=st.sampled_from([("d0",), ("d0",), ("d0",), ("d1",), ("d?",), ("*",), ("tpu:*",)]),
    queue=st.builds(QueuePolicy, max_rows=st.integers(1, 40), max_bytes=st.integers(1, 200)),
    load_timeout_s=st.sampled_from([3.0, 20.0, 100.0]),
)


class SchedulerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world: World
        self.last_id = 0

    @initialize(
        d0=devices, d1=devices, limits=limits, specs=st.lists(specs, min_size=1, max_size=4), resident=st.booleans()
    )
    def begin(self, d0: DeviceLimits, d1: DeviceLimits, limits: Limits, specs: list[ModelSpec], resident: bool) -> None:
        self.world = World({"d0": d0, "d1": d1}, limits)
        for key, spec in zip(KEYS, specs, strict=False):
            self.world.register(key, spec)
            self.world.load(key)
        if resident:
            self.world.answer_everything()

    # Models come and go.

    @rule(key=st.sampled_from(KEYS), spec=specs, load=st.booleans())
    def register(self, key: ModelKey, spec: ModelSpec, load: bool) -> None:
        if key not in self.world.scheduler.state.models:
            self.world.register(key, spec)
            if load:
                self.world.load(key)

    @rule(key=st.sampled_from(KEYS))
    def load(self, key: ModelKey) -> None:
        self.world.load(key)

    @rule(key=st.sampled_from(KEYS))
    def unload(self, key: ModelKey) -> None:
        self.world.unload(key)

    # Callers come and go.

    @rule(
        key=st.sampled_from(KEYS),
        rows=st.integers(1, 8),
        timeout_s=st.sampled_from([-1.0, 0.0, 0.5, 1000.0]),
    )
    def arrive(self, key: ModelKey, rows: int, timeout_s: float) -> None:
        self._arrive(key, rows, size_bytes=1, batch_key="x", timeout_s=timeout_s)

    @precondition(lambda self: bool(self.serving))
    @rule(
        data=st.data(),
        rows=st.lists(st.integers(1, 8), min_size=1, max_size=6),
        size_bytes=st.integers(0, 20),
        batch_key=st.sampled_from(["x", "x", "x", "y", None]),
        timeout_s=st.sampled_from([0.5, 3.0, 30.0, 1000.0]),
    )
    def arrive_together(
        self, data: st.DataObject, rows: list[int], size_bytes: int, batch_key: str | None, timeout_s: float
    ) -> None:
        key = data.draw(st.sampled_from(self.serving))
        for each in rows:
            self._arrive(key, each, size_bytes=size_bytes, batch_key=batch_key, timeout_s=timeout_s)

    @precondition(lambda self: bool(self.serving))
    @rule(rows=st.integers(1, 3))
    def arrive_everywhere(self, rows: int) -> None:
        for key in self.serving:
            self._arrive(key, rows, size_bytes=1, batch_key="x", timeout_s=30.0)

    def _arrive(self, key: ModelKey, rows: int, *, size_bytes: int, batch_key: str | None, timeout_s: float) -> None:
        spec = self.world.specs.get(key)
        self.last_id += 1
        self.world.arrive(
            make_request(
                self.last_id,
                model=key,
                rows=min(rows, max(1, spec.max_batch_size)) if spec else rows,
                size_bytes=size_bytes,
                arrived_s=self.world.now,
                deadline_s=self.world.now + timeout_s,
                batch_key=batch_key,
            )
        )

    @property
    def serving(self) -> list[ModelKey]:
        """Models that are loaded, or on their way in or out."""
        states = {ModelState.LOADING, ModelState.RESIDENT, ModelState.UNLOADING}
        return [key for key, model in self.world.scheduler.state.models.items() if model.state in states]

    @precondition(lambda self: self.last_id > 0)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        self.world.cancel(data.draw(st.integers(1, self.last_id)))

    # Workers do what they were told, or not.

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
        free_bytes = self.world.scheduler.state.budgets[process.device].free_bytes
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

    @precondition(lambda self: _any(self, unloading=True))
    @rule(data=st.data())
    def finish_unload(self, data: st.DataObject) -> None:
        name = self.some(data, unloading=True)
        self.world.finish_unload(name, data.draw(st.sampled_from(sorted(self.world.processes[name].unloading))))

    @precondition(lambda self: _any(self, running=True))
    @rule(data=st.data())
    def finish_run(self, data: st.DataObject) -> None:
        name = self.some(data, running=True)
        self.world.finish_run(name, data.draw(st.sampled_from(list(self.world.processes[name].runs))))

    @precondition(lambda self: _any(self, running=True))
    @rule(data=st.data())
    def fail_run(self, data: st.DataObject) -> None:
        name = self.some(data, running=True)
        self.world.fail_run(name, data.draw(st.sampled_from(list(self.world.processes[name].runs))))

    @rule(run_id=st.integers(1, 3), key=st.sampled_from(KEYS))
    def say_what_nobody_awaits(self, run_id: int, key: ModelKey) -> None:
        """Late words of a process that is known to have died; and names that mean nothing."""
        if run_id not in self.world.scheduler.state.runs:
            self.world.send(events.RunFinished(run_id, RESULT))
        if not any(key in process.weights for process in self.world.processes.values()):
            self.world.send(events.ModelLoaded(key, 5))
            self.world.send(events.ModelUnloaded(key))
        self.world.send(events.WorkerUp("nobody"))
        self.world.send(events.WorkerLost("nobody", "it died"))

    # Time passes; the wake-up may be late.

    @rule(seconds=st.sampled_from([0.1, 1.0, 10.0, 100.0]))
    def sleep(self, seconds: float) -> None:
        self.world.now += seconds

    @rule()
    def wake(self) -> None:
        self.world.wake()

    @rule()
    def answer_everything(self) -> None:
        """Nobody has anything left to do: whoever still waits, waits for a moment that will come."""
        self.world.send(events.TimeReached())
        self.world.answer_everything()
        state = self.world.scheduler.state
        for model in state.models.values():
            worker = state.workers.get(model.worker or "")
            backing_off = worker is not None and worker.restart_at_s is not None
            assert model.state is not ModelState.UNLOADING
            assert model.state is not ModelState.LOADING or backing_off
            assert not model.queue or backing_off

    @precondition(lambda self: self.last_id > 5)
    @rule(sure=st.sampled_from([True, False, False, False]))
    def drain(self, sure: bool) -> None:
        if sure:
            self.world.send(events.DrainStarted())

    def teardown(self) -> None:
        if hasattr(self, "world") and self.world.sound:
            _ends_well(self.world)


def _has(process: Process, having: dict[str, bool]) -> bool:
    facts = {
        "starting": not process.up,
        "told_to_end": process.told_to_end,
        "building": process.building is not None,
        "unloading": bool(process.unloading),
        "running": bool(process.runs),
    }
    return all(facts[name] == wanted for name, wanted in having.items())


def _any(machine: Any, **having: bool) -> bool:
    return any(_has(process, having) for process in machine.world.processes.values())


def _ends_well(world: World) -> None:
    """Let run to rest, every request has an answer, and every load and unload that was asked for has ended."""
    world.come_to_rest()
    state = world.scheduler.state
    assert not world.waiting
    assert not world.loads_asked
    assert not world.unloads_asked
    assert not state.pending_loads
    assert len(state.timers) == 0
    assert not {model.state for model in state.models.values()} & {ModelState.LOADING, ModelState.UNLOADING}
    for key in list(state.models):
        world.unload(key)
    world.come_to_rest()
    assert not state.models
    assert not world.unloads_asked
    for name, budget in state.budgets.items():
        workers = [worker for worker in state.workers.values() if worker.device == name]
        assert budget.leased_bytes == sum(worker.context.size_bytes for worker in workers if worker.context)
        assert all(worker.worker == name for worker in workers), "a dedicated worker outlived its model"


@pytest.mark.timeout(300)
def test_scheduler() -> None:
    run_state_machine_as_test(
        SchedulerMachine,
        settings=settings(
            max_examples=1000, stateful_step_count=50, deadline=None, suppress_health_check=[HealthCheck.too_slow]
        ),
    )
