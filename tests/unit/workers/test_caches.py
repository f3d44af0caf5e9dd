"""What a worker keeps of memory that is free again, and when it gives that back. torch's part is played."""

import queue
import select
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from moorage.domain.model import ModelKey
from moorage.workers import segment as segments
from moorage.workers.child import caches as module
from moorage.workers.child.building import Built
from moorage.workers.child.caches import KEPT_BYTES, Caches
from moorage.workers.child.gauges import Gauges, LaneGauge
from moorage.workers.child.lane import LaneHandles, LaneThread
from moorage.workers.child.transfers import Present, Transfers
from moorage.workers.framing import Deframer, frame
from moorage.workers.lane_messages import (
    Dropped,
    DropStates,
    Execute,
    Executed,
    ExecuteFailed,
    ExecuteStep,
    FromLane,
    StartingMember,
    Stepped,
    Suspended,
    SuspendStates,
)
from moorage.workers.messages import GaveBack, Offloaded, Restored, SetCap
from moorage.workers.runtimes.base import RuntimeOptions
from moorage.workers.runtimes.simulated import SimulatedRuntime

DEVICE = "cuda:0"
KEY = ModelKey("model", 1)
ALONE = SetCap(1000, 1)
HELD = SetCap(1000, 2, keeps_cached=False)
BESIDE = SetCap(1000, 3, keeps_cached=False, keeps_pinned=False)


class Torch:
    """calls: what was asked of it, and on which thread, in order."""

    def __init__(self) -> None:
        self.cached_bytes = KEPT_BYTES + 1
        self.calls: queue.Queue[tuple[str, str]] = queue.Queue()

    def __getattr__(self, call: str) -> Any:
        return lambda *given: self.calls.put((call, threading.current_thread().name))

    def next(self) -> tuple[str, str]:
        return self.calls.get(timeout=5.0)


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Torch:
    played = Torch()
    calls = ("release_cached_blocks", "release_freed_memory", "release_pinned_memory", "release_what_failed")
    for call in ("cap_device_memory", *calls):
        monkeypatch.setattr(module, call, getattr(played, call))
    monkeypatch.setattr(module, "cached_bytes", lambda device: played.cached_bytes)
    return played


def caches(torch: Torch, *caps: SetCap) -> Caches:
    made = Caches(DEVICE, lambda message: torch.calls.put(("answer", type(message).__name__)))
    for cap in caps:
        made.set_cap(cap)
        assert torch.next()[0] == "cap_device_memory"
    return made


@pytest.mark.parametrize("caps", [(), (ALONE,), (HELD, ALONE)])
def test_one_alone_keeps_what_its_runs_had(torch: Torch, caps: tuple[SetCap, ...]) -> None:
    alone = caches(torch, *caps)
    alone.run_ended()
    alone.copies_ended()
    assert torch.calls.empty()


@pytest.mark.parametrize("cap", [HELD, BESIDE])
def test_one_beside_others_gives_it_back_at_once(torch: Torch, cap: SetCap) -> None:
    caches(torch, cap).run_ended()
    assert torch.next() == ("release_cached_blocks", threading.current_thread().name)


@pytest.mark.parametrize("caps", [(), (ALONE,), (BESIDE,)])
def test_after_a_run_that_found_no_memory_nothing_is_kept(torch: Torch, caps: tuple[SetCap, ...]) -> None:
    torch.cached_bytes = 0
    caches(torch, *caps).ran_out()
    assert torch.next() == ("release_what_failed", threading.current_thread().name)


def test_a_little_is_kept_all_the_same(torch: Torch) -> None:
    torch.cached_bytes = KEPT_BYTES
    caches(torch, BESIDE).run_ended()
    assert torch.calls.empty()


def test_pinned_memory_goes_back_on_a_thread_of_its_own(torch: Torch) -> None:
    beside = caches(torch, BESIDE)
    for _ in range(2):
        beside.copies_ended()
        assert torch.next() == ("release_pinned_memory", "caches")


def test_for_a_hold_pinned_memory_is_kept(torch: Torch) -> None:
    held = caches(torch, HELD)
    held.copies_ended()
    held.give_back()
    assert torch.next() == ("release_freed_memory", "caches")
    assert torch.next() == ("answer", "GaveBack")
    held.set_cap(BESIDE)
    held.give_back()
    calls = [torch.next()[0] for _ in range(4)]
    assert calls == ["cap_device_memory", "release_freed_memory", "answer", "release_pinned_memory"]


def test_what_was_given_back_is_told(torch: Torch, monkeypatch: pytest.MonkeyPatch) -> None:
    answers: queue.Queue[msgspec.Struct] = queue.Queue()
    reserved = iter((100, 30))
    monkeypatch.setattr(module, "reserved_bytes", lambda device: next(reserved))
    Caches(DEVICE, answers.put).give_back()
    assert answers.get(timeout=5.0) == GaveBack(70)


def test_a_run_that_overtakes_its_cap_waits_for_it(torch: Torch) -> None:
    made = caches(torch, ALONE)
    begun = threading.Event()

    def run() -> None:
        begun.set()
        made.wait_for_cap(3)
        torch.run()

    thread = threading.Thread(target=run, name="lane")
    thread.start()
    assert begun.wait(5.0)
    made.set_cap(HELD)
    made.set_cap(BESIDE)
    assert [torch.next()[0] for _ in range(3)] == ["cap_device_memory", "cap_device_memory", "run"]
    thread.join(5.0)
    made.wait_for_cap(3)  # it has come


def test_a_framework_that_comes_late_is_told_the_last_cap(torch: Torch) -> None:
    made = caches(torch)
    made.apply_cap()
    assert torch.calls.empty()
    made.set_cap(ALONE)
    made.apply_cap()
    assert [torch.next()[0] for _ in range(2)] == ["cap_device_memory"] * 2


class Watched(Caches):
    """asked: what it was asked for, and whether the server had had an answer by then."""

    def __init__(self, server: socket.socket | None = None) -> None:
        super().__init__(DEVICE, lambda message: None)
        self.asked: list[tuple[str, bool]] = []
        self._server = server

    def wait_for_cap(self, number: int) -> None:
        self.asked.append((f"cap {number}", self._is_answered()))

    def run_ended(self) -> None:
        self.asked.append(("run ended", self._is_answered()))

    def ran_out(self) -> None:
        self.asked.append(("ran out", self._is_answered()))

    def copies_ended(self) -> None:
        self.asked.append(("copies ended", self._is_answered()))

    def _is_answered(self) -> bool:
        return self._server is not None and bool(select.select([self._server], [], [], 0)[0])


def unmeasured() -> LaneGauge:
    return LaneGauge(Gauges(None), measures_all=False)


@contextmanager
def lane(options: RuntimeOptions) -> Iterator[tuple[Watched, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.settimeout(5.0)
    watched = Watched(ours)
    built = Built(SimulatedRuntime(options), {}, {}, True, "cpu")
    thread = LaneThread(KEY, built, LaneHandles(theirs, segments.create()), watched, unmeasured())
    thread.start()
    thread.serve()
    with ours:
        yield watched, ours
    thread.finish()


def answered(server: socket.socket, message: msgspec.Struct, kinds: Sequence[type]) -> None:
    server.sendall(frame(msgspec.msgpack.encode(message)))
    deframer = Deframer()
    got: list[FromLane] = []
    while not got:
        got = [msgspec.msgpack.decode(body, type=FromLane) for body in deframer.feed(server.recv(65536))]
    assert [type(answer) for answer in got] == list(kinds)


def test_a_run_is_reported_when_its_memory_is_back() -> None:
    with lane(RuntimeOptions((), (), True)) as (watched, server):
        answered(server, Execute(1, 1, (), (), 0, after_cap=7), [Executed])
    assert watched.asked == [("cap 7", False), ("run ended", False)]


@pytest.mark.parametrize(("error", "asked"), [(MemoryError(), "ran out"), (ValueError(), "run ended")])
def test_one_that_found_no_memory_is_reported_when_all_is_back(
    monkeypatch: pytest.MonkeyPatch, error: Exception, asked: str
) -> None:
    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr(SimulatedRuntime, "infer", fails)
    with lane(RuntimeOptions((), (), True)) as (watched, server):
        answered(server, Execute(1, 1, (), (), 0, after_cap=7), [ExecuteFailed])
    assert watched.asked == [("cap 7", False), (asked, False)]


def test_a_run_is_answered_where_its_memory_does_not_come_back(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fails(watched: Watched) -> None:
        raise RuntimeError("cudaFree has failed")

    monkeypatch.setattr(Watched, "run_ended", fails)
    with lane(RuntimeOptions((), (), True)) as (_, server):
        for run_id in (1, 2):
            answered(server, Execute(run_id, 1, (), (), 0), [Executed])
    assert capfd.readouterr().err.count("RuntimeError: cudaFree has failed") == 2


def test_steps_too_and_copies_that_they_may_give_up_are_looked_at() -> None:
    member = StartingMember(1, "", 1, {}, ())
    with lane(RuntimeOptions((), (), True, steps=9)) as (watched, server):
        answered(server, ExecuteStep(1, (member,), (), (1,), 0, after_cap=7), [Stepped])
        assert watched.asked == [("cap 7", False), ("run ended", False)]
        answered(server, SuspendStates((1,)), [Suspended])
        answered(server, ExecuteStep(2, (), (1,), (1,), 0, after_cap=8), [Stepped])
        answered(server, DropStates((1,)), [Dropped])
    names = [name for name, _ in watched.asked[2:]]
    assert names == ["copies ended", "cap 8", "run ended", "copies ended", "copies ended"]


def test_so_are_those_of_weights_after_the_answer() -> None:
    watched = Watched()
    runtime = SimulatedRuntime(RuntimeOptions((), (), True, declared_weights_bytes=1))
    theirs, ours = socket.socketpair()
    handles = LaneHandles(theirs, segments.create())
    thread = LaneThread(KEY, Built(runtime, {}, {}, True, "cpu"), handles, watched, unmeasured())
    order: list[str] = []
    transfers = Transfers(
        "cpu", lambda message: order.append(f"{type(message).__name__} {len(watched.asked)}"), watched
    )
    transfers.add(KEY, Present(runtime, Path(), [thread]))
    transfers.offload(KEY)
    transfers.restore(KEY)
    assert order == [f"{Offloaded.__name__} 0", f"{Restored.__name__} 1"]
    assert len(watched.asked) == 2
    theirs.close()
    ours.close()
