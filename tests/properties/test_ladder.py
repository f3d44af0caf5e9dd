"""The same world, where models have room and runs keep finding no memory all the same."""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule, run_state_machine_as_test

from moorage.domain.model import BatchingPolicy, Isolation, Loading, ModelKey, ModelSpec, SharePolicy
from moorage.scheduling.state import DeviceLimits, Limits
from tests.properties.strategies import KEYS, SPLIT
from tests.properties.test_scheduler import EXAMPLES, SchedulerMachine
from tests.properties.worker_rules import OUT_OF_MEMORY
from tests.properties.world import World
from tests.support.scheduling import make_spec

# A run is tried again whole twice, alone and when others have left, halved as often as its rows allow, and likewise on
# each of the devices.
MOST_FAILURES = 2 * (2 + 4)

roomy = st.builds(DeviceLimits, capacity_bytes=st.integers(30, 60), run_slots=st.sampled_from([1, 2, 8]))
small = st.builds(
    make_spec,
    instances=st.sampled_from([1, 1, 2]),
    weights=st.integers(1, 8),
    fixed=st.sampled_from([0, 0, 3, 9]),
    max_batch_size=st.sampled_from([1, 4, 8]),
    loading=st.sampled_from([Loading.EAGER, Loading.ON_DEMAND]),
    isolation=st.sampled_from([Isolation.SHARED, Isolation.SHARED, Isolation.DEDICATED]),
    devices=st.sampled_from([("d0",), ("d0",), ("d?",)]),
    fallback=st.sampled_from(["", "d1", "d1", "d1"]),
    share=st.builds(SharePolicy, priority=st.sampled_from([2, 3, 3, 4]), pinned=st.sampled_from([False, False, True])),
    batching=st.sampled_from([BatchingPolicy(), BatchingPolicy(0.0), SPLIT]),
    steps=st.sampled_from([1, 1, 1, 2]),
    state=st.sampled_from([0, 2]),
    offloads=st.booleans(),
).filter(lambda spec: spec.instances == 1 or spec.simulated.steps == 1)


class LadderMachine(SchedulerMachine):
    @initialize(d0=roomy, d1=roomy, small=st.lists(small, min_size=2, max_size=4))
    def begin(self, d0: DeviceLimits, d1: DeviceLimits, small: list[ModelSpec]) -> None:
        self.world = World({"d0": d0, "d1": d1}, Limits(min_residency_s=0.0, max_input_bytes=40))
        for key, spec in zip(KEYS, small, strict=False):
            self.world.register(key, spec)
            self.world.load(key)
        self.world.answer_everything()

    @precondition(lambda self: self._running())
    @rule(data=st.data())
    def run_out(self, data: st.DataObject) -> None:
        name, run_id = data.draw(st.sampled_from(self._running()))
        self.world.fail_run(name, run_id, OUT_OF_MEMORY)

    @precondition(lambda self: bool(self.serving))
    @rule(data=st.data(), rows=st.integers(1, 8))
    def arrive_and_run_out(self, data: st.DataObject, rows: int) -> None:
        """Nobody has memory for this one, wherever it is tried; and that is found out at once."""
        key: ModelKey = data.draw(st.sampled_from(self.serving))
        self._arrive(key, rows, timeout_s=1000.0, priority=0)
        request_id, failures = self.last_id, 0
        while (found := self._run_of(request_id)) is not None:
            self.world.fail_run(*found, OUT_OF_MEMORY)
            failures += 1
            self.world.answer_moves()
            assert failures <= MOST_FAILURES * rows, "it is tried for ever"

    def _running(self) -> list[tuple[str, int]]:
        return [(name, run_id) for name, process in self.world.processes.items() for run_id in process.runs]

    def _run_of(self, request_id: int) -> tuple[str, int] | None:
        for name, process in self.world.processes.items():
            for run_id, run in process.runs.items():
                requests = [entry.request for entry in run.entries]
                if any(request_id in (it.request_id, it.piece and it.piece.whole.request_id) for it in requests):
                    return name, run_id
        return None


@pytest.mark.no_cover
@pytest.mark.timeout(300 + EXAMPLES // 10)
def test_ladder() -> None:
    run_state_machine_as_test(
        LadderMachine,
        settings=settings(
            max_examples=EXAMPLES // 4,
            stateful_step_count=50,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
