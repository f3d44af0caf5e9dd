"""A process that is not ours takes most of the card, or the card or its driver fails, while requests flow."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage_client import DeadlineExceeded, FailedPrecondition, Overloaded
from tests.integration.memory.card import (
    BUDGET_BYTES,
    CARD_BYTES,
    DEVICE,
    MODELS,
    NEEDS_CUDA,
    WEIGHTS_BYTES,
    CardServer,
    all_fits,
    ask,
    card_server,
    traffic,
)
from tests.support.fake_nvml import GIB, needs_c_compiler
from tests.support.memory_watch import device_in, leased_bytes, watching_ledger

pytestmark = [needs_c_compiler, pytest.mark.timeout(120)]

FOREIGN_BYTES = 6 * CARD_BYTES // 10
LEFT_BYTES = CARD_BYTES - FOREIGN_BYTES
FOREIGN = {os.getpid(): FOREIGN_BYTES}  # this very process, which is none of the server's
HELD_BYTES = 3 * GIB
MOST_EVICTION_S = 3.0


@pytest.fixture
def served(tmp_path: Path) -> Iterator[CardServer]:
    with card_server(tmp_path) as served:
        yield served


def test_another_process_takes_sixty_percent_of_the_card_and_gives_it_back(served: CardServer) -> None:
    assert served.device.capacity_bytes == BUDGET_BYTES
    assert served.resident() == set(MODELS)
    with traffic(served.server.grpc) as seen, watching_ledger(served.server.grpc) as ledger:
        seen.wait_for_more()
        assert served.evictions() == 0
        served.card.use(processes=FOREIGN)
        served.wait_for(lambda device: device.capacity_bytes == LEFT_BYTES, "the capacity shrinks")
        served.wait_for(all_fits, "idle weights go", within_s=MOST_EVICTION_S)
        assert served.evictions() >= len(MODELS) - LEFT_BYTES // WEIGHTS_BYTES
        seen.wait_for_more()
        before = served.evictions()
        served.card.use(processes={})
        served.wait_for(lambda device: device.capacity_bytes == BUDGET_BYTES, "the capacity comes back")
        served.wait_for(lambda device: leased_bytes(device) >= len(MODELS) * WEIGHTS_BYTES, "so do the weights")
        seen.wait_for_more()
        assert before > len(MODELS), "five models took turns on the room of two"
    assert seen.failures == []
    statuses = [device_in(snapshot, DEVICE) for snapshot in ledger.snapshots]
    shrunk = [status for status in statuses if status.capacity_bytes == LEFT_BYTES]
    fitting = next(index for index, status in enumerate(shrunk) if all_fits(status))
    assert all(all_fits(status) for status in shrunk[fitting:])


def test_a_hold_that_is_used_is_charged_once(served: CardServer) -> None:
    with served.client.hold(DEVICE, HELD_BYTES):
        served.wait_for(lambda device: device.leased_bytes["held"] == HELD_BYTES, "the hold is in the ledger")
        served.card.use(processes={os.getpid(): HELD_BYTES + FOREIGN_BYTES})
        served.wait_for(lambda device: device.capacity_bytes == LEFT_BYTES, "what it takes beyond its hold counts")
        served.card.use(processes={os.getpid(): HELD_BYTES})
        served.wait_for(lambda device: device.capacity_bytes == BUDGET_BYTES, "the capacity comes back")
    unheld_bytes = CARD_BYTES - HELD_BYTES
    served.wait_for(lambda device: device.capacity_bytes == unheld_bytes, "released, and used all the same")
    served.card.use(processes={})
    served.wait_for(lambda device: device.capacity_bytes == BUDGET_BYTES, "nobody uses it")


def test_a_card_that_is_lost_serves_nobody_until_it_is_back(served: CardServer) -> None:
    served.card.lose()
    served.wait_for(lambda device: device.capacity_bytes == 0, "the card is known to be lost")
    served.wait_for(lambda device: not leased_bytes(device), "everything is off it")
    runs_before = served.client.statistics(MODELS[0])[0].execution_count
    with pytest.raises((Overloaded, DeadlineExceeded)):
        ask(served.client, MODELS[0], timeout_s=2.0)
    assert served.client.is_live()
    assert served.client.statistics(MODELS[0])[0].execution_count == runs_before
    served.card.come_back()
    # NVML is opened anew every half a minute while a card is lost.
    served.wait_for(lambda device: device.capacity_bytes == BUDGET_BYTES, "the card is back", within_s=45.0)
    for model in MODELS:
        ask(served.client, model, timeout_s=10.0)


def test_requests_that_flow_while_the_card_is_lost_are_refused_and_then_served(served: CardServer) -> None:
    with traffic(served.server.grpc, timeout_s=1.0) as seen:
        seen.wait_for_more()
        assert seen.failures == []
        served.card.lose()
        served.wait_for(lambda device: device.capacity_bytes == 0, "the card is known to be lost")
        served.wait_for(lambda device: not leased_bytes(device), "everything is off it")
        served.card.come_back()
        served.wait_for(lambda device: device.capacity_bytes == BUDGET_BYTES, "the card is back", within_s=45.0)
        seen.wait_for_more()
        refused = len(seen.failures)
        seen.wait_for_more()
        assert len(seen.failures) == refused
    codes = {failure.split(": ")[1] for failure in seen.failures}
    assert codes <= {"RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED"}, codes


def test_a_driver_that_hangs_holds_up_nobody(served: CardServer) -> None:
    served.card.use(processes=FOREIGN)
    served.wait_for(lambda device: device.capacity_bytes == LEFT_BYTES, "the capacity shrinks")
    with traffic(served.server.grpc) as seen:
        seen.wait_for_more()
        served.card.hang(60.0)
        served.wait_for(lambda device: device.capacity_bytes == BUDGET_BYTES, "the configured budget stands")
        seen.wait_for_more(100)
        served.card.come_back()
        served.wait_for(lambda device: device.capacity_bytes == LEFT_BYTES, "it is read again", within_s=45.0)
        seen.wait_for_more()
    assert seen.failures == []


def test_a_model_that_needs_cuda_fails_alone(served: CardServer) -> None:
    """Here is no CUDA. The worker is told its cap all the same, and its other models need none."""
    with pytest.raises(FailedPrecondition, match="CUDA"):
        served.client.load(NEEDS_CUDA, timeout_s=30.0)
    served.card.use(processes=FOREIGN)
    served.wait_for(lambda device: device.capacity_bytes == LEFT_BYTES and all_fits(device), "it makes room")
    for model in MODELS:
        ask(served.client, model, timeout_s=10.0)
    assert "worker cuda:0 ended" not in served.server.logs
