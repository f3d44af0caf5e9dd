import pytest

from moorage.scheduling.recovery import crashes_in_a_row, restart_delay_s


@pytest.mark.parametrize(
    ("crashes", "delay_s"), [(0, 0.0), (1, 0.0), (2, 0.5), (3, 1.0), (4, 2.0), (7, 16.0), (8, 30.0), (1000, 30.0)]
)
def test_restarts_back_off(crashes: int, delay_s: float) -> None:
    assert restart_delay_s(crashes) == delay_s


@pytest.mark.parametrize(("before", "up_for_s", "crashes"), [(0, 0.0, 1), (3, 59.0, 4), (3, 60.0, 1)])
def test_a_long_life_is_forgiving(before: int, up_for_s: float, crashes: int) -> None:
    assert crashes_in_a_row(before, up_for_s) == crashes
