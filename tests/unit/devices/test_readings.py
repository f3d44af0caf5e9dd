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
    assert others_bytes(_reading(used, processes), OURS, leased) == others


def test_without_workers_everything_is_others() -> None:
    assert others_bytes(_reading(30, {10: 20}), (), 0) == 30
