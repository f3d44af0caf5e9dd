"""A hold is its call: granted when there is room, and given back however the call ends."""

import asyncio
import sys

import grpc
import pytest

from moorage.rpc import admin, listener
from moorage_protocol import moorage_v1 as pb
from tests.unit.rpc.admin_calls import administered, failure, figures, stream, until, until_still
from tests.unit.rpc.echo_backend import EchoBackend
from tests.unit.rpc.ledger import MIB
from tests.unit.rpc.running import batches_of, connected, listening, on_loop
from tests.unit.rpc.silent_proxy import silent_proxy

Code = grpc.StatusCode

SMALL_WINDOW = (("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 1024))

ALL = pb.HoldRequest(device="cpu", size_bytes=2048 * MIB)
SOME = pb.HoldRequest(device="cpu", size_bytes=MIB, priority=2)

HOLDING = """
import sys, grpc
from moorage_protocol import moorage_v1 as pb
with grpc.insecure_channel(sys.argv[1]) as channel:
    hold = channel.unary_stream("/moorage.v1.AdminService/Hold")
    messages = hold(pb.HoldRequest(device="cpu", size_bytes=1024).SerializeToString())
    print(pb.HoldResponse.FromString(next(messages)).granted.size_bytes, flush=True)
    sys.stdin.read()
"""


@on_loop
async def test_the_grant_comes_first_and_a_cancel_gives_back() -> None:
    backend = EchoBackend()
    async with connected(backend) as channel:
        hold = stream(channel, "Hold", SOME)
        assert await hold.read() == pb.HoldResponse(granted=pb.HoldGranted(device="cpu", size_bytes=MIB))
        assert [(held.size_bytes, held.priority) for held in backend.ledger.holds] == [(MIB, 2)]
        hold.cancel()
        await until(lambda: not backend.ledger.holds)


@on_loop
async def test_without_a_priority_it_is_3() -> None:
    backend = EchoBackend()
    async with connected(backend) as channel:
        hold = stream(channel, "Hold", pb.HoldRequest(device="cpu", size_bytes=1))
        assert await hold.read()
        assert [held.priority for held in backend.ledger.holds] == [3]


@on_loop
async def test_it_is_told_again_and_again_that_it_still_holds() -> None:
    backend = EchoBackend()
    async with administered(backend, 0.02) as (_, address), grpc.aio.insecure_channel(address) as channel:
        hold = stream(channel, "Hold", SOME)
        events = [(await hold.read()).WhichOneof("event") for _ in range(4)]
        assert backend.ledger.held_bytes == MIB
    assert events == ["granted", "keepalive", "keepalive", "keepalive"]


@on_loop
async def test_a_killed_process_gives_back() -> None:
    backend = EchoBackend()
    async with listening(backend) as address:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", HOLDING, address, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        assert await asyncio.wait_for(process.stdout.readline(), 20.0) == b"1024\n"
        assert backend.ledger.held_bytes == 1024
        process.kill()
        await until(lambda: not backend.ledger.holds)
        await process.wait()


def test_a_client_that_vanished_without_a_goodbye_gives_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "_KEEPALIVE_TIME_MS", 200)
    monkeypatch.setattr(listener, "_KEEPALIVE_TIMEOUT_MS", 200)

    @on_loop
    async def scenario() -> None:
        backend = EchoBackend()
        async with (
            listening(backend) as address,
            silent_proxy(address) as proxy,
            grpc.aio.insecure_channel(proxy.address) as channel,
        ):
            hold = stream(channel, "Hold", SOME)
            assert await hold.read()
            proxy.silent = True
            await until(lambda: not backend.ledger.holds)

    scenario()


@on_loop
async def test_the_call_s_deadline_gives_back() -> None:
    backend = EchoBackend()
    async with connected(backend) as channel:
        hold = stream(channel, "Hold", SOME, timeout=0.5)
        assert await hold.read()
        assert (await failure(hold.read())).code() is Code.DEADLINE_EXCEEDED
        await until(lambda: not backend.ledger.holds)


@pytest.mark.parametrize("ending", ["cancel", "close"])
def test_one_that_reads_nothing_gives_back_too(
    ending: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The call ends while the server waits to write: the client's window is full."""
    written = 0
    wait = admin._wait

    async def counted(event: asyncio.Event, seconds: float) -> bool:
        nonlocal written
        written += 1
        return await wait(event, seconds)

    monkeypatch.setattr(admin, "_wait", counted)

    @on_loop
    async def scenario() -> None:
        backend = EchoBackend()
        async with (
            administered(backend, 0.0) as (_, address),
            grpc.aio.insecure_channel(address, options=SMALL_WINDOW) as channel,
        ):
            hold = stream(channel, "Hold", SOME)
            await until(lambda: written > 0)
            await until_still(lambda: written)
            assert backend.ledger.holds
            if ending == "cancel":
                hold.cancel()
            else:
                await channel.close()
            await until(lambda: not backend.ledger.holds)

    scenario()
    assert "internal error" not in caplog.text


@on_loop
async def test_a_second_waits_for_the_first_to_end() -> None:
    backend = EchoBackend()
    async with connected(backend) as channel:
        first = stream(channel, "Hold", ALL)
        assert await first.read()
        second, third = (stream(channel, "Hold", ALL) for _ in range(2))
        waiting = asyncio.ensure_future(second.read())
        await until(lambda: backend.ledger.waiting == 2)
        third.cancel()
        await until(lambda: backend.ledger.waiting == 1)
        assert not waiting.done()
        first.cancel()
        assert (await waiting).granted.size_bytes == 2048 * MIB


@on_loop
async def test_it_does_not_wait_for_longer_than_asked() -> None:
    backend = EchoBackend()
    async with connected(backend) as channel:
        first = stream(channel, "Hold", ALL)
        assert await first.read()
        impatient = pb.HoldRequest(device="cpu", size_bytes=1, max_wait_ms=20)
        assert (await failure(stream(channel, "Hold", impatient).read())).code() is Code.DEADLINE_EXCEEDED
        assert len(backend.ledger.holds) == 1


@on_loop
async def test_what_never_fits_says_how_much_there_is() -> None:
    async with connected(EchoBackend()) as channel:
        error = await failure(stream(channel, "Hold", pb.HoldRequest(device="cpu", size_bytes=2**40)).read())
    assert error.code() is Code.FAILED_PRECONDITION
    assert figures(error) == {"device": "cpu", "bytes_needed": str(2**40), "bytes_capacity": str(2048 * MIB)}


@on_loop
async def test_the_server_s_stop_does_not_wait_for_holds() -> None:
    backend = EchoBackend()
    server = listener.Listener(backend, listener.ListenerSettings("127.0.0.1:0", "0.0.0"), batches_of(backend))
    async with grpc.aio.insecure_channel(await server.start()) as channel:
        hold = stream(channel, "Hold", SOME)
        assert await hold.read()
        await asyncio.wait_for(server.stop(grace_s=30.0), 10.0)
        assert (await failure(hold.read())).code() is Code.UNAVAILABLE
    assert not backend.ledger.holds


@pytest.mark.parametrize("read_first", [True, False])
@on_loop
async def test_stopping_ends_holds(read_first: bool) -> None:
    backend = EchoBackend()
    async with administered(backend, 15.0) as (service, address), grpc.aio.insecure_channel(address) as channel:
        hold = stream(channel, "Hold", SOME)
        if read_first:
            assert await hold.read()
        else:
            await until(lambda: bool(backend.ledger.holds))
        service.close()
        await until(lambda: not backend.ledger.holds)
        if not read_first:
            assert await hold.read()
        assert (await failure(hold.read())).code() is Code.UNAVAILABLE
