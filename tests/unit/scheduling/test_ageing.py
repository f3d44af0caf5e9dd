"""What has waited long is served earlier. But what gave way for somebody does not take the room back first."""

from moorage.domain.model import ModelKey, SharePolicy
from moorage.scheduling.state import DeviceLimits, Limits
from tests.support.core import Core
from tests.support.scheduling import make_spec

LOW, HIGH = ModelKey("low", 1), ModelKey("high", 1)


def aged(requests: int) -> Core:
    """Two states of 30 fit beside weights of 20 in 100 bytes; what is asked of LOW at 0 s has risen by 50 s."""
    core = Core.on(DeviceLimits(100, host_bytes=1000, run_slots=1), Limits(min_residency_s=0.0, ageing_s=10.0))
    core.resident(make_spec("low", weights=10, state=30, steps=99, share=SharePolicy(priority=5, pinned=True)))
    core.resident(make_spec("high", weights=10, fixed=40, share=SharePolicy(priority=1, pinned=True)))
    for number in range(requests):
        core.ask(number, LOW)
    for _ in range(51):
        core.step(LOW, seconds=1.0)
    core.ask(9, HIGH)
    return core


def test_a_state_that_gave_way_does_not_take_the_room_back_first() -> None:
    core = aged(requests=2)
    assert core.step(LOW, seconds=1.0) == [
        "suspend 1",
        "step 0",
    ]  # better: no step here, the slot is about to be wanted
    core.suspended(1, key=LOW)
    assert core.step(LOW, seconds=1.0) == ["execute 9"]  # is: ["step 0 resuming 1"], and so on for ever


def test_one_that_waits_for_memory_does_not_give_its_turn_to_others_of_its_model() -> None:
    core = aged(requests=3)
    assert "suspend 1" in core.step(LOW, seconds=1.0)  # is: ["step 0 1"], until one of them is done
