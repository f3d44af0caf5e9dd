"""Scenarios that nobody would write: whatever they ask for, the scheduler keeps its promises."""

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.domain.model import BatchingPolicy
from moorage.scheduling import actions, events
from moorage.scheduling.policy import POLICIES
from moorage.scheduling.scheduler import Scheduler
from moorage.scheduling.state import DeviceLimits, Limits
from moorage.simulation.arrivals import Traffic
from moorage.simulation.fleet import assemble
from moorage.simulation.scenario import (
    Choice,
    ClosedLoop,
    DeviceGroup,
    ModelGroup,
    Pattern,
    Poisson,
    Popularity,
    Scenario,
    Stream,
)
from moorage.simulation.world import World

REQUESTS = 60


class Checked(Scheduler):
    """Holds its books against themselves after every event."""

    def handle(self, event: events.Event, now: float) -> list[actions.Action]:
        decided = super().handle(event, now)
        self.check_integrity()
        return decided


@st.composite
def device_groups(draw: st.DrawFn) -> DeviceGroup:
    return DeviceGroup(
        name="device",
        count=draw(st.integers(1, 2)),
        capacity_bytes=draw(st.integers(80, 300)),
        context_bytes=draw(st.sampled_from([0, 10])),
        host_bytes=draw(st.sampled_from([0, 60, 100_000])),
        disk_bytes_per_s=draw(st.sampled_from([20, 1000])),
        host_to_device_bytes_per_s=draw(st.sampled_from([50, 5000])),
        device_to_host_bytes_per_s=draw(st.sampled_from([50, 5000])),
        run_slots=draw(st.integers(1, 3)),
    )


@st.composite
def model_groups(draw: st.DrawFn, name: str) -> ModelGroup:
    steps = draw(st.sampled_from([1, 1, 4]))
    return ModelGroup(
        name=name,
        count=draw(st.integers(1, 4)),
        sizes=Choice((draw(st.integers(1, 70)), draw(st.integers(1, 70))), (1.0, 1.0)),
        run_s=draw(st.sampled_from([0.01, 0.5])),
        run_s_per_row=draw(st.sampled_from([0.0, 0.1])),
        workspace_bytes=draw(st.sampled_from([0, 10])),
        workspace_per_row_bytes=draw(st.sampled_from([0, 5])),
        steps=steps,
        state_bytes=draw(st.integers(0, 20)) if steps > 1 else 0,
        priority=draw(st.integers(1, 5)),
        max_batch_size=draw(st.integers(2, 4)),
        instances=draw(st.integers(1, 3)) if steps == 1 else 1,
        max_queue_rows=draw(st.sampled_from([4, 256])),
        batching=draw(st.sampled_from([BatchingPolicy(), BatchingPolicy(0.0), BatchingPolicy(0.05, 3)])),
    )


def streams(pattern: st.SearchStrategy[Pattern]) -> st.SearchStrategy[Stream]:
    return st.builds(
        Stream,
        pattern=pattern,
        models=st.just(()),
        popularity=st.builds(Popularity, zipf=st.sampled_from([0.0, 1.5]), shift_every_requests=st.just(20)),
        priorities=st.sampled_from([{0: 1.0}, {1: 0.5, 5: 0.5}]),
        least_rows=st.just(1),
        most_rows=st.integers(1, 2),
        deadline_s=st.sampled_from([1.0, 10.0, 1000.0]),
    )


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    patterns: st.SearchStrategy[Pattern] = st.one_of(
        st.builds(Poisson, st.sampled_from([0.5, 20.0])),
        st.builds(ClosedLoop, st.integers(1, 8), st.just(0.1), st.sampled_from([0.1, 0.3])),
    )
    return Scenario(
        name="random",
        seed=draw(st.integers(0, 1000)),
        requests=REQUESTS,
        duration_s=None,
        devices=(draw(device_groups()),),
        models=(draw(model_groups("a")), draw(model_groups("b"))),
        streams=tuple(draw(st.lists(streams(patterns), min_size=1, max_size=2))),
        limits=Limits(min_residency_s=draw(st.sampled_from([0.0, 1.0])), ageing_s=draw(st.sampled_from([1.0, 10.0]))),
    )


def play(scenario: Scenario, policy: str, make: Callable[..., Scheduler] = Checked) -> World:
    fleet = assemble(scenario)
    devices = {
        name: DeviceLimits(it.capacity_bytes, it.context_bytes, host_bytes=it.host_bytes, run_slots=it.run_slots)
        for name, it in fleet.devices.items()
    }
    world = World(make(devices, scenario.limits, POLICIES[policy]), fleet, Traffic(scenario, fleet))
    world.run()  # raises where memory is overdrawn, or a request is answered twice or never
    return world


@settings(max_examples=40, deadline=None)
@given(scenarios(), st.sampled_from(sorted(POLICIES)))
def test_promises_hold_whatever_is_asked(scenario: Scenario, policy: str) -> None:
    tally = play(scenario, policy).tally
    assert len(tally.asked) == REQUESTS
    assert sum(tally.answered.values()) + sum(tally.failures.values()) == REQUESTS
    assert tally.offloads.count >= tally.restores.count
    assert sum(tally.in_time.values()) == sum(tally.answered.values())  # what is late is answered with an error


@settings(max_examples=20, deadline=None)
@given(scenarios(), st.sampled_from(sorted(POLICIES)))
def test_slots_are_kept_to(scenario: Scenario, policy: str) -> None:
    world = play(scenario, policy)
    assert world.tally.kills or not any(device.slot_waits for device in world.devices.values())
