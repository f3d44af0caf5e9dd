"""The monitor on the real binding and a fake driver; and on a source that says what the test wants."""

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pynvml
import pytest

from moorage.devices.monitor import DeviceMonitor, Listener, Ours
from moorage.devices.nvml import NvmlSource, Patience
from moorage.devices.readings import DeviceReading, Reading
from tests.support.fake_nvml import GIB, FakeCard, needs_c_compiler
from tests.support.until import until

WORKER, OTHER = os.getpid(), os.getppid()
PATIENCE = Patience(answer_s=0.1, opening_s=5.0, reopening_s=0.0)


@dataclass
class Heard:
    """What the monitor told, and what it is told is ours."""

    readings: list[tuple[str, int, int]] = field(default_factory=list)
    lost: list[tuple[str, str]] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    pids: set[int] = field(default_factory=lambda: {WORKER})
    leased_bytes: int = 0
    held_bytes: int = 0
    looks: float = 0

    @property
    def listener(self) -> Listener:
        def on_reading(device: str, total_bytes: int, others_bytes: int) -> None:
            self.readings.append((device, total_bytes, others_bytes))

        def on_lost(device: str, reason: str) -> None:
            self.lost.append((device, reason))

        return Listener(on_reading, on_lost, self.unknown.append)

    @property
    def ours(self) -> Ours:
        def pids() -> set[int]:
            self.looks += 0.5  # asked before and after each
            return set(self.pids)

        return Ours(pids, lambda _: self.leased_bytes, lambda _: self.held_bytes)

    async def others_hold(self, size_bytes: int) -> None:
        """Wait for a reading, taken from now on, with so much held by others."""
        seen = len(self.readings)
        await until(lambda: any(others_bytes == size_bytes for _, _, others_bytes in self.readings[seen:]))

    async def some_looks(self) -> None:
        """Let the monitor look a few times more."""
        enough = self.looks + 5
        await until(lambda: self.looks >= enough)


@pytest.fixture
def card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCard]:
    card = FakeCard(tmp_path)
    card.load(monkeypatch)
    yield card
    card.come_back()


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, logger="moorage.devices.monitor")
    return caplog


def _lines(log: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.levelname, record.getMessage()) for record in log.records]


def _monitored(use: Callable[[Heard], Coroutine[Any, Any, None]]) -> Heard:
    """Run a monitor of cuda:0 beside `use`."""
    heard = Heard()

    async def run() -> None:
        source = NvmlSource(["cuda:0"], {}, PATIENCE)
        monitor = DeviceMonitor(["cpu", "cuda:0"], source, heard.ours, heard.listener, interval_s=0.01)
        task = asyncio.create_task(monitor.run())
        try:
            await use(heard)
            assert not task.done()
        finally:
            task.cancel()
            await asyncio.wait([task])
            source.close()

    asyncio.run(run())
    return heard


@needs_c_compiler
def test_others_come_and_go(card: FakeCard, log: pytest.LogCaptureFixture) -> None:
    async def use(heard: Heard) -> None:
        await heard.others_hold(0)
        card.use(processes={WORKER: GIB, OTHER: 2 * GIB}, overhead_bytes=100)
        await heard.others_hold(2 * GIB + 100)
        card.use(processes={WORKER: 3 * GIB})
        await heard.others_hold(100)

    heard = _monitored(use)
    assert {(device, total_bytes) for device, total_bytes, _ in heard.readings} == {("cuda:0", 8 * GIB)}
    source = f"NVML (driver 999.1, {card.card.uuid})"
    assert _lines(log) == [("INFO", f"cuda:0: what others hold is read from {source}")]


@needs_c_compiler
def test_where_processes_are_not_told_the_ledger_tells(card: FakeCard, log: pytest.LogCaptureFixture) -> None:
    card.refuse("nvmlDeviceGetComputeRunningProcesses_v3")
    card.use(processes={WORKER: 2 * GIB, OTHER: GIB})

    async def use(heard: Heard) -> None:
        await heard.others_hold(3 * GIB)
        heard.leased_bytes = 2 * GIB
        await heard.others_hold(GIB)

    _monitored(use)
    assert len(log.records) == 1
    assert log.text.rstrip().endswith("it does not tell processes apart, so the ledger does")


@needs_c_compiler
def test_lost_and_back_are_told_once(card: FakeCard, log: pytest.LogCaptureFixture) -> None:
    async def use(heard: Heard) -> None:
        await heard.others_hold(0)
        card.lose()
        await until(lambda: heard.lost)
        seen = len(heard.readings)
        await heard.some_looks()
        assert len(heard.readings) == seen
        card.come_back()
        await heard.others_hold(0)

    heard = _monitored(use)
    assert heard.lost == [("cuda:0", "GPU is lost")]
    assert heard.unknown == []
    lost, back = _lines(log)[1:]
    assert lost == ("WARNING", "cuda:0 is lost: GPU is lost")
    assert back[0] == "WARNING"
    assert back[1].startswith("cuda:0 is back: ")


@needs_c_compiler
def test_a_hang_is_told_once_and_looked_past(card: FakeCard, log: pytest.LogCaptureFixture) -> None:
    async def use(heard: Heard) -> None:
        await heard.others_hold(0)
        card.hang(60.0)
        await until(lambda: heard.unknown)
        await heard.some_looks()
        card.use(processes={OTHER: GIB})
        card.come_back()
        await heard.others_hold(GIB)

    heard = _monitored(use)
    assert heard.unknown == ["cuda:0"]
    unknown, again = _lines(log)[1:]
    stands = "what others hold can't be told, so the configured budget stands"
    assert unknown == ("WARNING", f"cuda:0: {stands}: NVML: no answer within 0.1 s")
    assert again[0] == "INFO"


@needs_c_compiler
def test_what_can_never_be_told_is_said_once(card: FakeCard, log: pytest.LogCaptureFixture) -> None:
    card.refuse("nvmlInitWithFlags", pynvml.NVML_ERROR_DRIVER_NOT_LOADED)

    async def use(heard: Heard) -> None:
        await until(lambda: heard.unknown)
        await heard.some_looks()

    heard = _monitored(use)
    assert (heard.unknown, heard.readings, heard.lost) == (["cuda:0"], [], [])
    assert [level for level, _ in _lines(log)] == ["WARNING"]
    assert "Driver Not Loaded" in log.text


@needs_c_compiler
def test_a_hold_is_not_charged_again_whatever_comes_first(card: FakeCard) -> None:
    async def use(heard: Heard) -> None:
        card.use(processes={WORKER: GIB}, overhead_bytes=100)
        await heard.others_hold(100)
        heard.held_bytes = 2 * GIB
        card.use(processes={WORKER: GIB, OTHER: 2 * GIB})
        await heard.others_hold(100)
        card.use(processes={WORKER: GIB, OTHER: 3 * GIB})
        await heard.others_hold(GIB + 100)
        heard.held_bytes = 0  # released, and still used
        await heard.others_hold(3 * GIB + 100)
        heard.held_bytes = 2 * GIB  # used, and then held
        await heard.others_hold(GIB + 100)

    _monitored(use)


@needs_c_compiler
def test_a_lost_card_stays_lost_until_it_is_read(card: FakeCard, log: pytest.LogCaptureFixture) -> None:
    async def use(heard: Heard) -> None:
        await heard.others_hold(0)
        card.lose()
        await until(lambda: heard.lost)
        card.refuse("nvmlInitWithFlags", pynvml.NVML_ERROR_DRIVER_NOT_LOADED)  # its driver is being reset
        await heard.some_looks()
        card.hang(60.0)
        await heard.some_looks()
        card.come_back()
        await heard.others_hold(0)

    heard = _monitored(use)
    assert heard.unknown == []
    assert [level for level, _ in _lines(log)] == ["INFO", "WARNING", "WARNING"]
    assert "is back" in log.text.splitlines()[-1]


class _Scripted:
    """A source whose sample is a function of the test's."""

    def __init__(self, sample: Callable[[], Reading]) -> None:
        self._sample = sample

    def name_of(self, device: str) -> str:
        return f"a script for {device}"

    async def sample(self) -> Mapping[str, Reading]:
        return {"cuda:0": self._sample()}


def _one_reading(heard: Heard, sample: Callable[[], Reading]) -> tuple[str, int, int]:
    async def run() -> None:
        monitor = DeviceMonitor(["cuda:0"], _Scripted(sample), heard.ours, heard.listener, interval_s=3600)
        task = asyncio.create_task(monitor.run())
        await until(lambda: heard.readings)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()

    asyncio.run(run())
    return heard.readings[0]


def test_a_worker_that_ends_during_the_look_was_ours() -> None:
    heard = Heard(pids={10})

    def sample() -> Reading:
        heard.pids = {11}
        return DeviceReading("cuda:0", 100, 60, {10: 30, 11: 20, 7: 10}, None)

    assert _one_reading(heard, sample) == ("cuda:0", 100, 10)


@pytest.mark.parametrize(("before", "after"), [(40, 0), (0, 40)], ids=["given back", "taken"])
def test_a_lease_that_changes_during_the_look_was_ours(before: int, after: int) -> None:
    heard = Heard(leased_bytes=before)

    def sample() -> Reading:
        heard.leased_bytes = after
        return DeviceReading("cuda:0", 100, 60, None, None)

    assert _one_reading(heard, sample) == ("cuda:0", 100, 20)


@pytest.mark.parametrize(("before", "after"), [(40, 0), (0, 40)], ids=["released", "granted"])
def test_a_hold_that_changes_during_the_look_counts(before: int, after: int) -> None:
    heard = Heard(held_bytes=before)

    def sample() -> Reading:
        heard.held_bytes = after
        return DeviceReading("cuda:0", 100, 60, {7: 60}, None)

    assert _one_reading(heard, sample) == ("cuda:0", 100, 20)


def test_a_cpu_is_not_looked_at() -> None:
    def sample() -> Reading:
        raise AssertionError("nobody should look")

    heard = Heard()
    asyncio.run(DeviceMonitor(["cpu"], _Scripted(sample), heard.ours, heard.listener).run())
    assert heard.readings == []
