import mmap
import sys
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from moorage.workers.child import resident
from moorage.workers.child.gauges import Gauges, LaneGauge, meter_of, peak_of
from moorage.workers.child.heap import AsideHeap
from moorage.workers.child.meters import Meter, Taken
from moorage.workers.child.resident import ResidentMeter

MIB = 2**20

linux = pytest.mark.skipif(sys.platform != "linux", reason="the kernel tells of a process's memory on Linux")


class Counted:
    """A meter that counts how often it is asked, and says so."""

    def __init__(self, *, is_cheap: bool = False) -> None:
        self.is_cheap = is_cheap
        self.starts = 0
        self.stops = 0
        self.thorough: list[bool] = []

    def start(self, *, thorough: bool) -> None:
        self.starts += 1
        self.thorough.append(thorough)

    def taken(self) -> Taken:
        return Taken(self.starts)

    def stop(self) -> None:
        self.stops += 1


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
@pytest.mark.parametrize("kib", [200, 1000, 5000])
def test_what_a_run_has_at_once_is_told_to_some_pages_whatever_holes_the_heap_has(kib: int) -> None:
    gauges = Gauges(ResidentMeter())
    holes = [bytearray(b"\1") * (size * 1024) for size in (30, 300, 3000, 50, 500) * 3]
    found = []
    for number in range(6):
        del holes[:2]
        gauges.measured(touched(kib * 1024 // 2), thorough=True)
        _, taken = gauges.measured(touched(kib * 1024 // 2 + number % 2), thorough=True)
        assert taken is not None
        found.append(taken.peak_bytes)
    # Less what a process takes by itself.
    assert max(found) == pytest.approx((kib - 96) * 1024, abs=48 * 1024)
    assert max(found) - min(found) < 48 * 1024


@linux
@pytest.mark.parametrize(("processors", "added_up_pages"), [(2, 32), (64, 128)])
def test_what_the_kernel_may_have_added_up_late_is_nothing(
    monkeypatch: pytest.MonkeyPatch, processors: int, added_up_pages: int
) -> None:
    """Pages that were touched before a run and count only in it, a processor's at once; 24 are the process's own."""
    monkeypatch.setattr("os.cpu_count", lambda: processors)
    meter = ResidentMeter()
    before = resident._memory()

    def taken(pages: int) -> int:
        after = replace(before, most_resident_bytes=before.resident_bytes + pages * mmap.PAGESIZE)
        readings = iter([before, after])
        monkeypatch.setattr(resident, "_memory", lambda: next(readings))
        meter.start(thorough=False)
        peak_bytes = meter.taken().peak_bytes
        meter.stop()
        return peak_bytes

    assert taken(added_up_pages + 24) == 0
    assert taken(added_up_pages + 25) == (added_up_pages + 1) * mmap.PAGESIZE


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


def test_all_but_the_first_are_measured_where_that_costs_nothing() -> None:
    gauge = LaneGauge(Gauges(Counted(is_cheap=True)), measures_all=True)
    measured = [number for number in range(1, 12) if gauge.run(4, 64, lambda: None)[1] is not None]
    assert measured == list(range(2, 12))


def test_where_all_are_wanted_some_are_left_as_they_are_for_their_time() -> None:
    meter = Counted()
    gauge = LaneGauge(Gauges(meter), measures_all=True)
    measured = [number for number in range(1, 12) if gauge.run(4, 64, lambda: None)[1] is not None]
    assert measured == [2, 3, 4, 6, 7, 8, 9, 11]
    assert gauge.run(5, 80, lambda: None)[1] is not None  # of another size
    assert all(meter.thorough)


def test_a_meter_is_stopped_however_a_run_ends() -> None:
    meter = Counted()
    gauges = Gauges(meter)
    gauges.measured(lambda: 1)
    with pytest.raises(ZeroDivisionError):
        gauges.measured(lambda: 1 // 0)
    assert (meter.starts, meter.stops, meter.thorough) == (2, 2, [False, False])


def test_without_a_meter_nothing_is_said() -> None:
    gauge = LaneGauge(Gauges(None), measures_all=True)
    assert [gauge.run(1, 1, lambda: "done") for _ in range(3)] == [("done", None)] * 3
    assert peak_of(None) == (None, None)


@linux
def test_main_memory_is_measured_by_what_the_kernel_says() -> None:
    meter: Meter | None = meter_of("cpu")
    assert isinstance(meter, ResidentMeter)


def test_a_kernel_that_does_not_tell_is_lived_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moorage.workers.child.resident._STATUS", "/proc/self/limits")
    assert meter_of("cpu") is None


@linux
def test_another_allocator_keeps_what_is_freed_so_nothing_can_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    # As glibc tells it where a preloaded jemalloc allocates.
    monkeypatch.setattr("moorage.workers.child.heap._Mallinfo.in_use_bytes", 0)
    assert meter_of("cpu") is None


@linux
def test_what_is_withheld_of_the_heap_is_let_in_again() -> None:
    heap = AsideHeap()
    blocks = [bytearray(20 * 1024) for _ in range(64)]
    del blocks[::2]
    heap.keep_out()
    assert heap.withheld
    heap.let_in()
    assert not heap.withheld
