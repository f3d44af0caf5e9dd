"""Readings by the real binding from a fake driver."""

import os
from collections.abc import Iterator
from pathlib import Path

import pynvml
import pytest

from moorage.devices.nvml import NvmlCards
from moorage.devices.readings import DeviceLost, DeviceReading, DeviceUnknown
from tests.support.fake_nvml import GIB, Card, FakeCard, Slice, needs_c_compiler

pytestmark = needs_c_compiler

US, OTHER = os.getpid(), os.getppid()
NOBODY = 2**22 + 1  # above any process id that Linux gives out
LISTING = "nvmlDeviceGetComputeRunningProcesses_v3"


@pytest.fixture
def card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCard]:
    card = FakeCard(tmp_path)
    card.load(monkeypatch)
    yield card
    card.come_back()


@pytest.fixture
def cards(card: FakeCard) -> Iterator[NvmlCards]:
    cards = NvmlCards(["cuda:0"], {}, reopening_s=0.0)
    yield cards
    card.come_back()
    cards.close()


def _look(cards: NvmlCards) -> DeviceReading:
    reading = cards.read()["cuda:0"]
    assert isinstance(reading, DeviceReading), reading
    return reading


def test_a_reading(card: FakeCard, cards: NvmlCards) -> None:
    card.card.utilization_percent = 40
    card.use(processes={US: GIB, OTHER: 2 * GIB}, overhead_bytes=100)
    assert _look(cards) == DeviceReading("cuda:0", 8 * GIB, 3 * GIB + 100, {US: GIB, OTHER: 2 * GIB}, 0.4)
    assert cards.description("cuda:0") == f"driver 999.1, {card.card.uuid}"


def test_changes_are_seen(card: FakeCard, cards: NvmlCards) -> None:
    assert _look(cards).processes == {}
    card.use(processes={OTHER: GIB})
    assert _look(cards).processes == {OTHER: GIB}
    card.use(processes={}, total_bytes=4 * GIB)
    assert _look(cards) == DeviceReading("cuda:0", 4 * GIB, 0, {}, 0.0)


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_NO_PERMISSION, pynvml.NVML_ERROR_NOT_SUPPORTED])
def test_what_is_refused_is_left_out(card: FakeCard, cards: NvmlCards, code: int) -> None:
    card.use(processes={US: GIB})
    card.refuse(LISTING, code)
    assert _look(cards) == DeviceReading("cuda:0", 8 * GIB, GIB, None, 0.0)
    card.refuse("nvmlDeviceGetUtilizationRates", code)
    assert _look(cards) == DeviceReading("cuda:0", 8 * GIB, GIB, None, None)
    card.come_back()
    assert _look(cards) == DeviceReading("cuda:0", 8 * GIB, GIB, {US: GIB}, 0.0)


def test_clients_of_the_multi_process_service_are_listed_too(card: FakeCard, cards: NvmlCards) -> None:
    card.card.mps_clients = {US: GIB}
    card.use(processes={OTHER: GIB})
    assert _look(cards) == DeviceReading("cuda:0", 8 * GIB, 2 * GIB, {US: GIB, OTHER: GIB}, 0.0)


def test_a_driver_without_the_multi_process_service(card: FakeCard, cards: NvmlCards) -> None:
    card.use(processes={US: GIB})
    card.refuse("nvmlDeviceGetMPSComputeRunningProcesses_v3", pynvml.NVML_ERROR_NOT_SUPPORTED)
    assert _look(cards).processes == {US: GIB}


@pytest.mark.parametrize(
    "processes",
    [{US: None, OTHER: GIB}, {US: 0, OTHER: GIB}, {US: GIB, NOBODY: GIB}],
    ids=["as on WSL", "listed with no bytes", "the host's numbers in a container"],
)
def test_processes_that_cannot_be_told_apart(
    card: FakeCard, cards: NvmlCards, processes: dict[int, int | None]
) -> None:
    card.use(processes=processes)
    assert _look(cards).processes is None


@pytest.mark.parametrize("step", [GIB, -GIB], ids=["taken", "given back"])
def test_memory_that_changes_hands_during_the_look_is_nobody_elses(card: FakeCard, cards: NvmlCards, step: int) -> None:
    card.use(processes={US: 5 * GIB, OTHER: GIB})
    card.drift(step, times=1)
    assert _look(cards) == DeviceReading("cuda:0", 8 * GIB, 6 * GIB + step, {US: 5 * GIB + step, OTHER: GIB}, 0.0)


def test_memory_that_never_rests_is_read_all_the_same(card: FakeCard, cards: NvmlCards) -> None:
    card.use(processes={US: GIB})
    card.drift(4096, times=1_000_000)
    assert GIB < _look(cards).used_bytes < GIB + 100 * 4096


def test_memory_that_cannot_be_read(card: FakeCard, cards: NvmlCards) -> None:
    card.refuse("nvmlDeviceGetMemoryInfo", pynvml.NVML_ERROR_NOT_SUPPORTED)
    assert cards.read() == {"cuda:0": DeviceUnknown("cuda:0", "its memory cannot be read: Not Supported")}
    card.come_back()
    assert _look(cards).total_bytes == 8 * GIB


@pytest.mark.parametrize("call", ["nvmlDeviceGetMemoryInfo", LISTING, "nvmlDeviceGetUtilizationRates"])
def test_a_loss_shows_in_any_call(card: FakeCard, cards: NvmlCards, call: str) -> None:
    assert _look(cards)
    card.refuse(call, pynvml.NVML_ERROR_GPU_IS_LOST)
    assert cards.read() == {"cuda:0": DeviceLost("cuda:0", "GPU is lost")}


def test_lost_and_back(card: FakeCard, cards: NvmlCards) -> None:
    assert _look(cards)
    card.lose()
    assert [cards.read()["cuda:0"] for _ in range(2)] == [DeviceLost("cuda:0", "GPU is lost")] * 2
    card.come_back()
    assert _look(cards).total_bytes == 8 * GIB


def test_lost_from_the_start(card: FakeCard, cards: NvmlCards) -> None:
    card.lose()
    assert cards.read() == {"cuda:0": DeviceLost("cuda:0", "GPU is lost")}
    card.come_back()
    assert _look(cards).total_bytes == 8 * GIB


def test_another_card_under_the_same_number_is_not_taken_for_it(card: FakeCard, cards: NvmlCards) -> None:
    assert _look(cards)
    card.lose()
    assert isinstance(cards.read()["cuda:0"], DeviceLost)
    card.come_back()
    card.cards[:] = [Card("GPU-another", GIB, bus=0), card.card]
    card.write()
    assert _look(cards).total_bytes == 8 * GIB


def test_a_card_that_is_taken_out_is_lost(card: FakeCard, cards: NvmlCards) -> None:
    assert _look(cards)
    card.cards[:] = [Card("GPU-another", GIB)]
    card.lose()
    card.write()
    card.refuse("nvmlDeviceGetMemoryInfo")
    assert isinstance(cards.read()["cuda:0"], DeviceUnknown)
    assert cards.read() == {"cuda:0": DeviceLost("cuda:0", f"{card.card.uuid} is no longer there")}


def test_what_is_opened_is_closed(card: FakeCard) -> None:
    before = card.times_opened
    cards = NvmlCards(["cuda:0"], {}, reopening_s=0.0)
    card.lose()
    for _ in range(3):
        cards.read()
        assert card.times_opened == before + 1
    cards.close()
    assert card.times_opened == before


def test_reopening_keeps_its_distance(card: FakeCard) -> None:
    cards = NvmlCards(["cuda:0"], {}, reopening_s=3600.0)
    card.refuse("nvmlInitWithFlags", pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
    assert cards.read() == {"cuda:0": DeviceUnknown("cuda:0", "NVML cannot be opened: Driver Not Loaded")}
    card.come_back()
    assert not cards.is_opening_due
    assert isinstance(cards.read()["cuda:0"], DeviceUnknown)


def test_a_driver_that_does_not_match_and_then_does(card: FakeCard, cards: NvmlCards) -> None:
    card.refuse("nvmlInitWithFlags", pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH)
    reading = cards.read()["cuda:0"]
    assert isinstance(reading, DeviceUnknown)
    assert "version mismatch" in reading.reason
    assert cards.description("cuda:0") == "driver not open, no card found"
    card.come_back()
    assert _look(cards).total_bytes == 8 * GIB


def test_one_device_in_trouble_leaves_the_others(card: FakeCard) -> None:
    cards = NvmlCards(["cuda:0", "cuda:1", "cuda:9"], {}, reopening_s=0.0)
    card.cards.append(Card("GPU-second", 2 * GIB, bus=2))
    card.write()
    cards.read()
    card.lose()
    for _ in range(2):
        lost, second, absent = cards.read().values()
        assert isinstance(lost, DeviceLost)
        assert isinstance(second, DeviceReading)
        assert second.total_bytes == 2 * GIB
        assert isinstance(absent, DeviceUnknown)
    cards.close()


def test_a_slice_has_figures_of_its_own(card: FakeCard) -> None:
    slices = [Slice("MIG-a", 2 * GIB, {US: GIB}, overhead_bytes=10), Slice("MIG-b", 3 * GIB, {OTHER: 2 * GIB})]
    card.card.slices = slices
    card.use(overhead_bytes=7 * GIB)
    cards = NvmlCards(["cuda:0", "cuda:1"], {"CUDA_VISIBLE_DEVICES": "MIG-b,0"}, reopening_s=0.0)
    assert cards.read() == {
        "cuda:0": DeviceReading("cuda:0", 3 * GIB, 2 * GIB, {OTHER: 2 * GIB}, None),
        "cuda:1": DeviceReading("cuda:1", 2 * GIB, GIB + 10, {US: GIB}, None),
    }
    assert cards.description("cuda:0") == "driver 999.1, MIG-b"
    cards.close()


def test_a_slice_that_is_removed_is_lost(card: FakeCard) -> None:
    card.card.slices = [Slice("MIG-a", 2 * GIB)]
    card.write()
    cards = NvmlCards(["cuda:0"], {}, reopening_s=0.0)
    assert _look(cards).total_bytes == 2 * GIB
    card.card.slices = []
    card.write()
    assert isinstance(cards.read()["cuda:0"], DeviceUnknown)
    assert cards.read() == {"cuda:0": DeviceLost("cuda:0", "MIG-a is no longer there")}
    cards.close()
