"""Which card CUDA means, asked of the real binding on a fake driver."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pynvml
import pytest

from moorage.devices.visible import NotVisible, cuda_environment, find_card, visible_names
from tests.support.fake_nvml import GIB, Card, FakeCard, Slice, needs_c_compiler

pytestmark = needs_c_compiler

FIRST = "GPU-fa4e0000-0000-0000-0000-000000000000"
SECOND = "GPU-fa4e1111-1111-1111-1111-111111111111"
DIVIDED = "GPU-d1f1de00-2222-2222-2222-222222222222"
SLICES = ("MIG-51ce0000-3333-3333-3333-333333333333", "MIG-51ce1111-4444-4444-4444-444444444444")

Find = Callable[..., str]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeCard:
    """Three cards, that the driver numbers in another order than the bus does: FIRST, SECOND, and one with slices."""
    second = Card(SECOND, 8 * GIB, bus=2)
    divided = Card(DIVIDED, 80 * GIB, bus=3, slices=[Slice(uuid, 10 * GIB) for uuid in SLICES])
    card = FakeCard(tmp_path, divided, second)
    card.load(monkeypatch)
    return card


@pytest.fixture
def find(machine: FakeCard) -> Iterator[Find]:
    """The UUID of what CUDA calls a number, by the given variables."""
    pynvml.nvmlInit()
    yield lambda number, **environment: str(pynvml.nvmlDeviceGetUUID(find_card(number, environment)))
    machine.come_back()
    pynvml.nvmlShutdown()


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (None, None),
        ("", ()),
        ("-1", ()),
        ("NoDevFiles", ()),
        ("1, 0", ("1", "0")),
        ("0,-1,1", ("0",)),
        ("GPU-fa4e,MIG-51ce", ("GPU-fa4e", "MIG-51ce")),
    ],
)
def test_what_is_no_name_hides_the_rest(text: str | None, names: tuple[str, ...] | None) -> None:
    assert visible_names({} if text is None else {"CUDA_VISIBLE_DEVICES": text}) == names


def test_numbers_follow_the_bus(find: Find) -> None:
    assert [find(0), find(1)] == [FIRST, SECOND]


@pytest.mark.parametrize(
    ("shown", "uuids"),
    [("1,0", [SECOND, FIRST]), (SECOND, [SECOND]), ("GPU-fa4e1,0", [SECOND, FIRST])],
    ids=["numbers", "a UUID", "the beginning of a UUID"],
)
def test_what_is_shown_is_numbered_anew(find: Find, shown: str, uuids: list[str]) -> None:
    assert [find(number, CUDA_VISIBLE_DEVICES=shown) for number in range(len(uuids))] == uuids


@pytest.mark.parametrize("shown", [None, "2", DIVIDED])
def test_a_divided_card_stands_for_its_first_slice(find: Find, shown: str | None) -> None:
    assert (find(2) if shown is None else find(0, CUDA_VISIBLE_DEVICES=shown)) == SLICES[0]


def test_a_slice_is_found_by_its_uuid(find: Find) -> None:
    assert find(1, CUDA_VISIBLE_DEVICES=f"0,{SLICES[1]}") == SLICES[1]


@pytest.mark.parametrize(
    ("number", "shown", "reason"),
    [
        (3, None, "there are 3 card"),
        (1, "0", "CUDA_VISIBLE_DEVICES shows 1 device"),
        (0, "", "CUDA_VISIBLE_DEVICES shows 0 device"),
        (0, "7", "there are 3 card"),
        (0, "GPU-fa4e", "names GPU-fa4e, which is 2 cards"),
        (0, "GPU-9", "names GPU-9, which is 0 cards"),
        (0, "MIG-9", "names MIG-9, which is no slice here"),
    ],
)
def test_what_is_not_there_is_said(find: Find, number: int, shown: str | None, reason: str) -> None:
    with pytest.raises(NotVisible, match=reason):
        find(number, **({} if shown is None else {"CUDA_VISIBLE_DEVICES": shown}))


def test_a_divided_card_without_a_slice(find: Find, machine: FakeCard) -> None:
    machine.cards[1].slices = []
    machine.write()
    with pytest.raises(NotVisible, match="the card has no slice"):
        find(2)


def test_unlike_cards_in_an_order_that_only_cuda_knows(find: Find, machine: FakeCard) -> None:
    assert find(1, CUDA_DEVICE_ORDER="FASTEST_FIRST") == SECOND
    machine.cards[2].name = "Fake T4"
    machine.write()
    with pytest.raises(NotVisible, match="set it to PCI_BUS_ID"):
        find(1, CUDA_DEVICE_ORDER="FASTEST_FIRST")
    assert find(1, **cuda_environment()) == SECOND


def test_cards_that_the_container_was_not_given_have_no_number(find: Find, machine: FakeCard) -> None:
    machine.refuse("nvmlDeviceGetHandleByIndex_v2", pynvml.NVML_ERROR_NO_PERMISSION)
    with pytest.raises(NotVisible, match="there are 0 card"):
        find(0)


def test_beside_a_lost_card_only_names_are_sure(find: Find, machine: FakeCard) -> None:
    machine.lose()
    with pytest.raises(NotVisible, match="a card is lost"):
        find(1)
    assert find(0, CUDA_VISIBLE_DEVICES=SECOND) == SECOND
    with pytest.raises(pynvml.NVMLError_GpuIsLost):
        find(0, CUDA_VISIBLE_DEVICES=FIRST)


def test_a_driver_that_knows_no_slices(find: Find, machine: FakeCard) -> None:
    machine.refuse("nvmlDeviceGetMigMode", pynvml.NVML_ERROR_NOT_SUPPORTED)
    assert find(2) == DIVIDED
