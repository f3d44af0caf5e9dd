import sys
import threading
from collections.abc import Callable

import pytest

from moorage.workers.child.gauges import Gauges, LaneGauge, Meter, ResidentMeter, Taken, meter_of, peak_of

MIB = 2**20

linux = pytest.mark.skipif(sys.platform != "linux", reason="the kernel tells of a process's memory on Linux")


class Counted:
    """A meter that counts how often it is asked, and says so."""

    def __init__(self, *, is_cheap: bool = False) -> None:
        self.is_cheap = is_cheap
        self.starts = 0

    def start(self) -> None:
        self.starts += 1

    def taken(self) -> Taken:
        return Taken(self.starts)


def touched(size_bytes: int) -> Callable[[], int]:
    def work() -> int:
        return len(bytes(bytearray(b"\1") * size_bytes))  # twice, while the one is made from the other

    return work


@linux
@pytest.mark.parametrize("size_bytes", [4 * MIB, 30 * MIB, 50 * MIB])
def test_what_a_run_touches_is_measured_however_often_it_is_done(size_bytes: int) -> None:
    gauges = Gauges(ResidentMeter())
    for _ in range(3):
        length, taken = gauges.measured(touched(size_bytes))
        assert length == size_bytes
        assert taken is not None
        assert taken.peak_bytes == pytest.approx(2 * size_bytes, rel=0.05, abs=MIB)


@linux
def test_what_there_is_already_does_not_count() -> None:
    kept = bytearray(b"\1") * (40 * MIB)
    _, taken = Gauges(ResidentMeter()).measured(touched(4 * MIB))
    assert taken is not None
    assert taken.peak_bytes < 12 * MIB < len(kept)


def test_nothing_is_said_of_what_did_not_run_alone() -> None:
    gauges = Gauges(Counted())
    assert gauges.measured(lambda: gauges.measured(lambda: "inner")) == (("inner", None), None)
    assert gauges.measured(lambda: gauges.beside(lambda: "beside")) == ("beside", None)
    assert gauges.beside(lambda: gauges.measured(lambda: "within")) == ("within", None)
    assert gauges.measured(lambda: "alone") == ("alone", Taken(3))


def test_a_run_that_raises_leaves_the_next_one_alone() -> None:
    gauges = Gauges(Counted())
    with pytest.raises(ZeroDivisionError):
        gauges.measured(lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        gauges.beside(lambda: 1 // 0)
    assert gauges.measured(lambda: 1)[1] is not None


def test_threads_are_told_apart() -> None:
    gauges = Gauges(Counted())
    inside, go_on = threading.Event(), threading.Event()

    def wait() -> bool:
        inside.set()
        return go_on.wait(5.0)

    thread = threading.Thread(target=gauges.beside, args=(wait,))
    thread.start()
    assert inside.wait(5.0)
    assert gauges.measured(lambda: 1) == (1, None)
    go_on.set()
    thread.join()
    assert gauges.measured(lambda: 1)[1] is not None


def test_fewer_and_fewer_runs_of_a_size_are_measured() -> None:
    gauge = LaneGauge(Gauges(Counted()), measures_all=False)
    measured = [number for number in range(1, 70) if gauge.run(4, 64, lambda: None)[1] is not None]
    assert measured == [2, 3, 4, 16, 64]
    assert gauge.run(5, 80, lambda: None)[1] is None  # of the same size
    assert gauge.run(8, 64, lambda: None)[1] is not None
    assert gauge.run(4, 640, lambda: None)[1] is not None


@pytest.mark.parametrize(("measures_all", "is_cheap"), [(True, False), (False, True)])
def test_all_but_the_first_are_measured_where_that_is_wanted_or_costs_nothing(
    measures_all: bool, is_cheap: bool
) -> None:
    gauge = LaneGauge(Gauges(Counted(is_cheap=is_cheap)), measures_all=measures_all)
    measured = [number for number in range(1, 12) if gauge.run(4, 64, lambda: None)[1] is not None]
    assert measured == list(range(2, 12))


def test_without_a_meter_nothing_is_said() -> None:
    gauge = LaneGauge(Gauges(None), measures_all=True)
    assert [gauge.run(1, 1, lambda: "done") for _ in range(3)] == [("done", None)] * 3
    assert peak_of(None) == (None, None)


@linux
def test_main_memory_is_measured_by_what_the_kernel_says() -> None:
    meter: Meter | None = meter_of("cpu")
    assert isinstance(meter, ResidentMeter)


def test_a_kernel_that_does_not_tell_is_lived_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moorage.workers.child.gauges._STATUS", "/proc/self/limits")
    assert meter_of("cpu") is None
