"""Watching: the newest state, not too often, never too seldom, and nothing kept for those who do not read."""

import time
from dataclasses import replace
from typing import Any

import grpc

from moorage.domain.tensor import TensorSpec
from moorage.engine.snapshot import ServerSnapshot
from moorage_protocol import moorage_v1 as pb
from tests.unit.rpc.admin_calls import administered, failure, stream, until, until_still
from tests.unit.rpc.echo_backend import EchoBackend, echo_spec, served
from tests.unit.rpc.running import connected, on_loop

QUICK = pb.WatchSnapshotRequest(interval_ms=50)


def backend() -> EchoBackend:
    return EchoBackend(served(echo_spec("echo", TensorSpec("x", "FP32", [1]))))


def wait_for_rows(engine: EchoBackend, rows: int) -> None:
    """Change what a snapshot shows, without telling anybody."""
    engine.models["echo"] = replace(engine.models["echo"], waiting_rows=rows)


class ChangingBackend(EchoBackend):
    """No two snapshots are alike: their number stands in them as waiting rows."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(replace(served(echo_spec("echo")), reason=reason))
        self.taken = 0

    def snapshot(self) -> ServerSnapshot:
        self.taken += 1
        wait_for_rows(self, self.taken)
        return super().snapshot()


async def rows_of(watch: Any) -> int:
    return int((await watch.read()).snapshot.models[0].waiting_rows)


@on_loop
async def test_the_first_comes_at_once_and_then_whatever_is_new() -> None:
    engine = backend()
    async with connected(engine) as channel:
        watch = stream(channel, "WatchSnapshot", QUICK)
        assert (await watch.read()).snapshot.models[0].state == pb.MODEL_STATE_RESIDENT
        engine.notify()  # of nothing new
        await engine.unload("echo")
        assert (await watch.read()).snapshot.models[0].state == pb.MODEL_STATE_UNLOADED
        wait_for_rows(engine, 7)
        assert await rows_of(watch) == 7
        engine.draining = True
        engine.notify()
        assert (await watch.read()).snapshot.draining


@on_loop
async def test_a_change_of_state_does_not_wait_for_the_next_look() -> None:
    engine = backend()
    async with connected(engine) as channel:
        watch = stream(channel, "WatchSnapshot", pb.WatchSnapshotRequest(interval_ms=400))
        assert await watch.read()
        began_s = time.monotonic()
        wait_for_rows(engine, 1)
        engine.notify()
        assert await rows_of(watch) == 1
        assert time.monotonic() - began_s > 0.3  # never before the interval is over


@on_loop
async def test_an_unchanged_server_is_still_heard_of() -> None:
    async with administered(backend(), keepalive_s=0.05) as (_, address), grpc.aio.insecure_channel(address) as channel:
        watch = stream(channel, "WatchSnapshot", pb.WatchSnapshotRequest(interval_ms=60_000))
        first = await watch.read()
        assert [await watch.read() for _ in range(3)] == [first] * 3


@on_loop
async def test_a_reader_that_stalls_gets_the_newest_soon_after_it_reads_again() -> None:
    engine = ChangingBackend("x" * 2_000_000)  # a few of these, and gRPC takes no more in advance
    async with connected(engine) as channel:
        watch = stream(channel, "WatchSnapshot", QUICK)
        await until(lambda: engine.taken > 0)
        await until_still(lambda: engine.taken)
        stalled_at = engine.taken
        assert stalled_at < 10
        engine.taken = 1000
        assert [await rows_of(watch) for _ in range(stalled_at + 1)] == [*range(1, stalled_at + 1), 1001]


@on_loop
async def test_watchers_share_snapshots() -> None:
    engine = ChangingBackend()
    async with connected(engine) as channel:
        began_s = time.monotonic()
        watches = [stream(channel, "WatchSnapshot", pb.WatchSnapshotRequest(interval_ms=500)) for _ in range(40)]
        assert max([await rows_of(watch) for watch in watches]) < 40
        assert engine.taken <= 1 + (time.monotonic() - began_s) / 0.05


@on_loop
async def test_stopping_ends_watches_and_leaves_no_subscription() -> None:
    engine = backend()
    async with administered(engine, 15.0) as (admin, address), grpc.aio.insecure_channel(address) as channel:
        watch = stream(channel, "WatchSnapshot", pb.WatchSnapshotRequest(interval_ms=60_000))
        assert await watch.read()
        assert len(engine.listeners) == 1
        admin.close()
        assert (await failure(watch.read())).code() is grpc.StatusCode.UNAVAILABLE
        assert engine.listeners == []
