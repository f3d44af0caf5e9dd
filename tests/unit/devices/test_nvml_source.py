"""The source of readings in its own thread: what hangs, what is cancelled, what other processes see."""

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from moorage.devices.nvml import NvmlSource, Patience
from moorage.devices.readings import DeviceReading, DeviceUnknown
from tests.support.fake_nvml import GIB, FakeCard, needs_c_compiler
from tests.support.polling import eventually
from tests.support.until import until

QUICK = Patience(answer_s=0.2, opening_s=5.0, reopening_s=0.0)


@pytest.fixture
def card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCard]:
    card = FakeCard(tmp_path)
    card.load(monkeypatch)
    yield card
    card.come_back()
    eventually(lambda: "nvml" not in {thread.name for thread in threading.enumerate()}, what="the thread's end")


def _with_source(use: Callable[[NvmlSource], Coroutine[Any, Any, None]], patience: Patience = QUICK) -> None:
    source = NvmlSource(["cuda:0"], {}, patience)
    asyncio.run(use(source))
    source.close()


@needs_c_compiler
def test_a_call_that_hangs_holds_up_nobody(card: FakeCard) -> None:
    async def use(source: NvmlSource) -> None:
        assert isinstance((await source.sample())["cuda:0"], DeviceReading)
        card.hang(60.0, "nvmlDeviceGetMemoryInfo")
        ticks = asyncio.create_task(_longest_pause_s())
        began_s = time.monotonic()
        assert (await source.sample())["cuda:0"] == DeviceUnknown("cuda:0", "NVML: no answer within 1 s")
        assert 1.0 <= time.monotonic() - began_s < 5.0
        busy = [(await source.sample())["cuda:0"] for _ in range(100)]
        assert busy == [DeviceUnknown("cuda:0", "NVML: a call has not come back yet")] * 100
        assert time.monotonic() - began_s < 5.0
        assert [thread.name for thread in threading.enumerate()].count("nvml") == 1
        ticks.cancel()
        assert await ticks < 0.5
        card.come_back()
        await _until_read(source)

    _with_source(use, Patience(answer_s=1.0, opening_s=5.0, reopening_s=0.0))


async def _longest_pause_s() -> float:
    longest_s, before_s = 0.0, time.monotonic()
    try:
        while True:
            await asyncio.sleep(0.005)
            now_s = time.monotonic()
            longest_s, before_s = max(longest_s, now_s - before_s), now_s
    except asyncio.CancelledError:
        return longest_s


async def _until_read(source: NvmlSource) -> None:
    async def is_read() -> bool:
        return isinstance((await source.sample())["cuda:0"], DeviceReading)

    await until(is_read)


@needs_c_compiler
def test_opening_has_a_limit_of_its_own(card: FakeCard) -> None:
    async def use(source: NvmlSource) -> None:
        card.hang(0.5, "nvmlInitWithFlags")
        assert isinstance((await source.sample())["cuda:0"], DeviceReading)

    _with_source(use)


@needs_c_compiler
def test_a_cancelled_sample_leaves_the_source_usable(card: FakeCard) -> None:
    async def use(source: NvmlSource) -> None:
        card.hang(60.0)
        sample = asyncio.create_task(source.sample())
        await asyncio.sleep(0)
        sample.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sample
        card.come_back()
        await _until_read(source)

    _with_source(use)


@needs_c_compiler
def test_an_answer_that_the_binding_stumbles_over(card: FakeCard) -> None:
    async def use(source: NvmlSource) -> None:
        card.card.uuid = "GPU-\udcff"
        card.write()
        reading = (await source.sample())["cuda:0"]
        assert isinstance(reading, DeviceUnknown)
        assert "UnicodeDecodeError" in reading.reason
        card.card.uuid = "GPU-fine"
        card.write()
        assert isinstance((await source.sample())["cuda:0"], DeviceReading)

    _with_source(use)


_ELSEWHERE = """
import asyncio, os
from moorage.devices.nvml import NvmlSource, Patience
source = NvmlSource(["cuda:0"], os.environ, Patience(answer_s=0.2, opening_s=0.2))
print(asyncio.run(source.sample())["cuda:0"])
source.close()
"""


def _elsewhere(environment: dict[str, str]) -> str:
    """What a process of its own reads. Raises TimeoutExpired where that process does not end."""
    variables = {**os.environ, **environment}
    command = [sys.executable, "-c", _ELSEWHERE]
    return subprocess.run(command, env=variables, capture_output=True, text=True, check=True, timeout=20).stdout


@needs_c_compiler
def test_another_process_finds_the_card_by_its_environment(card: FakeCard) -> None:
    card.use(processes={os.getpid(): GIB})
    assert f"total_bytes={8 * GIB}, used_bytes={GIB}, processes={{{os.getpid()}: {GIB}}}" in _elsewhere(
        card.environment
    )


@needs_c_compiler
def test_a_process_ends_although_a_call_hangs(card: FakeCard) -> None:
    card.hang(600.0)
    assert "no answer within 0.2 s" in _elsewhere(card.environment)


def test_without_the_library() -> None:
    text = _elsewhere({"LD_LIBRARY_PATH": ""})
    if "Not Found" not in text:
        pytest.skip("this machine has a libnvidia-ml.so.1")
    assert "NVML cannot be opened: NVML Shared Library Not Found" in text
