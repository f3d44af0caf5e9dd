import pytest

from moorage.devices.readings import DeviceReading, others_bytes

OURS = {10, 11}


def _reading(used: int, processes: dict[int, int] | None) -> DeviceReading:
    return DeviceReading("cuda:0", 100, used, processes, None)


@pytest.mark.parametrize(
    ("used", "processes", "leased", "others"),
    [
        (50, {10: 20, 11: 10, 7: 20}, 40, 20),
        (55, {10: 20, 11: 10, 7: 20}, 40, 25),
        (45, {10: 20, 11: 10, 7: 20}, 40, 20),
        (20, {10: 20, 11: 10}, 0, 0),
        (50, None, 30, 20),
        (20, None, 30, 0),
        (25, {7: 20}, 30, 20),
        (50, {}, 30, 20),
        (60, {7: 20}, 30, 30),
        (0, {}, 0, 0),
    ],
    ids=[
        "all is listed",
        "what nobody lists is others'",
        "never less than the listed others",
        "never below zero",
        "not told: all but what is leased",
        "not told, and not used yet",
        "ours hold nothing yet",
        "none are shown",
        "ours are not shown",
        "nothing is used",
    ],
)  # fmt: skip
def test_what_others_hold(used: int, processes: dict[int, int] | None, leased: int, others: int) -> None:
    assert others_bytes(_reading(used, processes), OURS, leased, 0) == others


def test_without_workers_everything_is_others() -> None:
    assert others_bytes(_reading(30, {10: 20}), (), 0, 0) == 30


@pytest.mark.parametrize(
    ("used", "processes", "held", "others"),
    [
        (50, {10: 20, 7: 30}, 30, 0),
        (60, {10: 20, 7: 40}, 30, 10),
        (30, {10: 20, 7: 10}, 30, 0),
        (55, {10: 20, 7: 30}, 30, 5),
        (20, {10: 20}, 30, 0),
        (50, None, 30, 0),
        (60, None, 30, 10),
        (50, {7: 30}, 30, 0),
    ],
    ids=[
        "held and used",
        "more used than held",
        "not all used yet",
        "beside what the driver keeps",
        "nothing used yet",
        "not told",
        "not told, more used than held",
        "ours are not shown",
    ],
)  # fmt: skip
def test_what_is_held_is_not_charged_again(used: int, processes: dict[int, int] | None, held: int, others: int) -> None:
    assert others_bytes(_reading(used, processes), OURS, own_leased_bytes=20, held_bytes=held) == others
