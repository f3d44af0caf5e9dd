"""The whole scheduler against a world in which anything may happen at any moment."""

import os

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule, run_state_machine_as_test

from moorage.domain.model import ModelKey, ModelSpec, ModelState, SharePolicy
from moorage.scheduling import events
from moorage.scheduling.state import DeviceLimits, Limits
from tests.properties.ending import ends_well
from tests.properties.strategies import KEYS, devices, limits, shares, specs
from tests.properties.worker_rules import WorkerRules
from tests.properties.world import World
from tests.support.scheduling import make_request

# `make soak` asks for more.
EXAMPLES = int(os.environ.get("TEST_EXAMPLES", "2000"))


class SchedulerMachine(WorkerRules):
    def __init__(self) -> None:
        super().__init__()
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

    @rule(key=st.sampled_from(KEYS), may_evict=st.booleans())
    def load(self, key: ModelKey, may_evict: bool) -> None:
        self.world.load(key, may_evict=may_evict)

    @rule(key=st.sampled_from(KEYS))
    def unload(self, key: ModelKey) -> None:
        self.world.unload(key)

    # Callers come and go.

    @rule(
        key=st.sampled_from(KEYS),
        rows=st.integers(1, 8),
        timeout_s=st.sampled_from([-1.0, 0.0, 0.5, 1000.0]),
        priority=st.integers(0, 5),
    )
    def arrive(self, key: ModelKey, rows: int, timeout_s: float, priority: int) -> None:
        self._arrive(key, rows, priority=priority, timeout_s=timeout_s)

    @precondition(lambda self: bool(self.serving))
    @rule(
        data=st.data(),
        members=st.lists(
            st.tuples(st.integers(1, 8), st.sampled_from([0, 0, 1, 10]), st.sampled_from([0.0, 0.0, 0.0, 60.0])),
            min_size=1,
            max_size=6,
        ),
        size_bytes=st.integers(0, 20),
        batch_key=st.sampled_from(["x", "x", "x", "y", None]),
        timeout_s=st.sampled_from([0.5, 3.0, 30.0, 1000.0]),
        priority=st.sampled_from([0, 0, 1, 5]),
    )
    def arrive_together(
        self,
        data: st.DataObject,
        members: list[tuple[int, int, float]],
        size_bytes: int,
        batch_key: str | None,
        timeout_s: float,
        priority: int,
    ) -> None:
        key = data.draw(st.sampled_from(self.serving))
        for rows, length, patience_s in members:
            self._arrive(
                key,
                rows,
                size_bytes=size_bytes,
                batch_key=batch_key,
                timeout_s=timeout_s + patience_s,
                priority=priority,
                length=length,
            )

    @precondition(lambda self: bool(self.serving))
    @rule(rows=st.integers(1, 3), priority=st.integers(0, 5))
    def arrive_everywhere(self, rows: int, priority: int) -> None:
        for key in self.serving:
            self._arrive(key, rows, timeout_s=30.0, priority=priority)

    def _arrive(
        self,
        key: ModelKey,
        rows: int,
        *,
        timeout_s: float,
        priority: int,
        size_bytes: int = 1,
        batch_key: str | None = "x",
        length: int = 0,
    ) -> None:
        """length: of an input that is padded, in elements of one byte; not where the key is "y"."""
        spec = self.world.specs.get(key)
        self.last_id += 1
        rows = min(rows, max(1, spec.max_request_rows)) if spec else rows
        padded = () if batch_key == "y" else ((1, length),)
        self.world.arrive(
            make_request(
                self.last_id,
                model=key,
                rows=rows,
                size_bytes=size_bytes + (rows * length if padded else 0),
                arrived_s=self.world.now,
                deadline_s=self.world.now + timeout_s,
                batch_key=batch_key,
                priority=priority,
                padded=padded,
            )
        )

    @property
    def serving(self) -> list[ModelKey]:
        """Models that are loaded, or on their way in or out."""
        models = self.world.scheduler.state.models.items()
        there = [key for key, model in models if model.device is not None or model.in_service]
        return [key for key in there if not key.is_understudy]

    @precondition(lambda self: self.last_id > 0)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        self.world.cancel(data.draw(st.integers(1, self.last_id)))

    @precondition(lambda self: bool(self.world.waiting))
    @rule(data=st.data())
    def pause(self, data: st.DataObject) -> None:
        """Whoever does not read most often has several who wait for it."""
        for request_id in data.draw(st.lists(st.sampled_from(sorted(self.world.waiting)), max_size=3)):
            self.world.pause(request_id)

    @precondition(lambda self: bool(self.world.paused))
    @rule(data=st.data())
    def resume(self, data: st.DataObject) -> None:
        self.world.resume(data.draw(st.sampled_from(self.world.paused)))

    # Operators, and processes outside.

    @rule(key=st.sampled_from(KEYS), share=shares)
    def change_share(self, key: ModelKey, share: SharePolicy) -> None:
        self.world.send(events.ShareChanged(key, share))

    @rule(device=st.sampled_from(["d0", "d0", "d1"]), share=st.sampled_from([0.0, 0.3, 0.6, 1.0, 1.0]))
    def change_capacity(self, device: str, share: float) -> None:
        configured_bytes = self.world.devices[device].capacity_bytes
        self.world.send(events.CapacityChanged(device, int(configured_bytes * share)))

    @rule(
        device=st.sampled_from(["d0", "d0", "d1", "d2"]),
        size_bytes=st.integers(1, 40),
        priority=st.integers(1, 5),
        patience_s=st.sampled_from([0.5, 30.0]),
    )
    def hold(self, device: str, size_bytes: int, priority: int, patience_s: float) -> None:
        self.last_id += 1
        self.world.hold(self.last_id, device, size_bytes, priority, patience_s)

    @precondition(lambda self: bool(self.world.holds | self.world.holds_asked))
    @rule(data=st.data())
    def let_go(self, data: st.DataObject) -> None:
        self.world.let_go(data.draw(st.sampled_from(sorted(self.world.holds | self.world.holds_asked))))

    @precondition(lambda self: bool(self.world.scheduler.state.models))
    @rule(data=st.data(), rows=st.integers(1, 8), priority=st.integers(0, 5))
    def explain(self, data: st.DataObject, rows: int, priority: int) -> None:
        """It answers, and changes nothing."""
        scheduler = self.world.scheduler
        key = data.draw(st.sampled_from(sorted(scheduler.state.models)))
        scheduler.explain(key, rows, priority, self.world.now)
        assert not scheduler.state.actions
        scheduler.check_integrity()

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
        for model in self.world.scheduler.state.models.values():
            assert model.run is None
            assert not any(entry.leaving for entry in model.active.values())
            assert model.state not in {ModelState.UNLOADING, ModelState.OFFLOADING, ModelState.RESTORING}

    @precondition(lambda self: self.last_id > 5)
    @rule(sure=st.sampled_from([True, False, False, False]))
    def drain(self, sure: bool) -> None:
        if sure:
            self.world.send(events.DrainStarted())

    def teardown(self) -> None:
        if hasattr(self, "world") and self.world.sound:
            ends_well(self.world)


@pytest.mark.no_cover  # the unit tests cover the core; tracing would make this twice as long
@pytest.mark.timeout(300 + EXAMPLES // 10)
def test_scheduler() -> None:
    run_state_machine_as_test(
        SchedulerMachine,
        settings=settings(
            max_examples=EXAMPLES, stateful_step_count=50, deadline=None, suppress_health_check=[HealthCheck.too_slow]
        ),
    )
