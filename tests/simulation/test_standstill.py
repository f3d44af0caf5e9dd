"""Devices on which everybody waits for somebody else: somebody has to go, however long the deadlines are."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.scheduling.policy import POLICIES
from moorage.simulation.scenario import Scenario
from tests.simulation.test_random_scenarios import play, scenarios
from tests.support.scenarios import scenario

LONG_S = 3000.0
NEVER = {"DeadlineExceeded", "LoadFailed", "ModelNotReady", "Preempted"}

DEVICE = """
requests = 60
[[devices]]
name = "device"
capacity = {capacity}
context = 10
host_capacity = {host}
disk_per_s = 1000
host_to_device_per_s = 50
device_to_host_per_s = 5000
run_slots = 2
"""

# A newcomer that has aged stands before work of higher priority that is in memory. It may not put that out, and that
# may not take the memory which it is waiting for.
AGED_NEWCOMER = (
    DEVICE.format(capacity=85, host=0)
    + """
[[models]]
name = "generator"
weights = 58
run_s = 0.5
steps = 4
state = 13
priority = 3
[[models]]
name = "small"
count = 2
weights = 10
run_s = 0.5
workspace = 10
workspace_per_row = 5
priority = 4
[[arrivals]]
pattern = "closed_loop"
clients = 6
think_s = 0.1
deadline_s = 3000
popularity = { zipf = 1.0 }
"""
)

# A newcomer waits for steps of equal priority to end, and they for memory that an idle model of low priority holds.
STEPS_WITHOUT_WORKSPACE = (
    DEVICE.format(capacity=97, host=100_000)
    + """
[[models]]
name = "low"
weights = 38
run_s = 0.01
workspace_per_row = 5
priority = 5
[[models]]
name = "high"
count = 3
weights = { choice = [35, 53] }
run_s = 0.5
workspace = 10
steps = 4
state = 3
max_batch_size = 3
priority = 1
[[arrivals]]
pattern = "closed_loop"
clients = 16
think_s = 0.1
deadline_s = 3000
priority = { 1 = 0.5, 5 = 0.5 }
"""
)


# Memory is kept for one of higher priority, with more aged ones before it than are looked past.
KEPT_FOR_ONE_FAR_BEHIND = """
seed = 274
requests = 60
scheduling = { ageing_s = 1.0, min_residency_s = 1.0 }
[[devices]]
name = "device"
capacity = 81
context = 10
host_capacity = 60
disk_per_s = 1000
host_to_device_per_s = 50
device_to_host_per_s = 5000
run_slots = 3
[[models]]
name = "a"
count = 3
weights = { choice = [18, 46] }
run_s = 0.01
workspace = 10
workspace_per_row = 5
priority = 2
max_batch_size = 4
max_queue_delay_s = 0.05
low_watermark = 3
[[models]]
name = "b"
count = 4
weights = { choice = [30, 53] }
run_s = 0.5
workspace = 10
priority = 2
max_batch_size = 3
max_queue_rows = 4
max_queue_delay_s = 0.05
low_watermark = 3
[[arrivals]]
pattern = "closed_loop"
clients = 3
think_s = [0.1, 0.3]
deadline_s = 3000
popularity = { shift_every_requests = 20 }
[[arrivals]]
pattern = "closed_loop"
clients = 7
think_s = 0.1
rows = [1, 2]
priority = { 1 = 0.5, 5 = 0.5 }
deadline_s = 3000
popularity = { shift_every_requests = 20 }
"""


def nobody_waits_for_ever(asked: Scenario, policy: str) -> None:
    failures = play(asked, policy).tally.failures
    assert not NEVER & set(failures), failures


@pytest.mark.parametrize("seed", [0, 1, 2, 4])
@pytest.mark.parametrize(
    "text", [AGED_NEWCOMER, STEPS_WITHOUT_WORKSPACE], ids=["aged newcomer", "steps without workspace"]
)
@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_known_ways_to_stand_still(policy: str, text: str, seed: int) -> None:
    nobody_waits_for_ever(replace(scenario(text), seed=seed), policy)


def test_whoever_memory_is_kept_for_is_looked_at() -> None:
    nobody_waits_for_ever(scenario(KEPT_FOR_ONE_FAR_BEHIND), "moorage")


@settings(max_examples=60, deadline=None)
@given(scenarios(), st.sampled_from(sorted(POLICIES)))
def test_nobody_waits_for_ever(asked: Scenario, policy: str) -> None:
    patient = tuple(replace(stream, deadline_s=LONG_S) for stream in asked.streams)
    nobody_waits_for_ever(replace(asked, streams=patient), policy)
