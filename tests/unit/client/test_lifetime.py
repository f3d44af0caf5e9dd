"""Clients that wait, are shared, closed and cancelled, against a real server."""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from moorage_client import (
    Cancelled,
    Client,
    DeadlineExceeded,
    SyncClient,
    Unavailable,
)
from tests.support.in_a_loop import with_client
from tests.support.protocol_server import Behaviour, protocol_server

PUSHBACK = (("grpc-retry-pushback-ms", "20"),)


def test_a_server_out_of_reach_is_unavailable() -> None:
    with protocol_server() as behaviour:
        target = behaviour.target
    with SyncClient(target, attempts=1) as client, pytest.raises(Unavailable):
        client.is_live()
    with SyncClient(target) as client, pytest.raises(DeadlineExceeded, match="no connection"):
        client.wait_until_ready(0.2)


def test_waiting_spans_the_start_of_the_server() -> None:
    with protocol_server() as behaviour:
        port = behaviour.port

    async def wait() -> None:
        async with Client(f"127.0.0.1:{port}") as client:
            waiting = asyncio.create_task(client.wait_until_ready(10.0))
            await asyncio.sleep(0)
            with protocol_server(port) as behaviour:
                behaviour.readiness = [False, False]
                await waiting
                assert behaviour.readiness == []

    asyncio.run(wait())


def test_waiting_says_what_was_missing(server: Behaviour) -> None:
    with SyncClient(server.target) as client, pytest.raises(DeadlineExceeded, match="model 'missing' is not ready"):
        client.wait_until_ready(1.0, ["missing"])


def test_many_threads_share_a_sync_client(server: Behaviour) -> None:
    with SyncClient(server.target) as client, ThreadPoolExecutor(8) as threads:
        answers = threads.map(lambda number: client.infer("identity", {"x": [number]})["x"][0], range(100))
        assert list(answers) == list(range(100))


def test_closing_a_sync_client_ends_what_other_threads_wait_for(server: Behaviour) -> None:
    entered, release = threading.Event(), threading.Event()

    def hold() -> None:
        entered.set()
        release.wait()

    server.hold = hold
    client = SyncClient(server.target)
    with ThreadPoolExecutor(1) as thread:
        answer = thread.submit(client.infer, "identity", {"x": [1]})
        assert entered.wait(10)
        began_s = time.monotonic()
        client.close()
        with pytest.raises(Cancelled):
            answer.result(timeout=10)
        assert time.monotonic() - began_s < 5
        release.set()
    with pytest.raises(Cancelled):
        client.is_live()
    client.close()


def test_closing_an_aio_client_ends_its_calls_with_an_error(server: Behaviour) -> None:
    entered, release = threading.Event(), threading.Event()

    def hold() -> None:
        entered.set()
        release.wait()

    server.hold = hold

    async def run() -> None:
        client = Client(server.target)
        answer = asyncio.create_task(client.infer("identity", {"x": [1]}))
        assert await asyncio.to_thread(entered.wait, 10)
        await client.close()
        with pytest.raises(Cancelled):
            await answer
        with pytest.raises(Cancelled):
            await client.is_live()
        await client.close()

    try:
        asyncio.run(run())
    finally:
        release.set()


def test_cancelling_the_caller_is_a_cancellation(server: Behaviour) -> None:
    entered, release = threading.Event(), threading.Event()

    def hold() -> None:
        entered.set()
        release.wait()

    server.hold = hold

    async def use(client: Client) -> None:
        answer = asyncio.create_task(client.infer("identity", {"x": [1]}))
        assert await asyncio.to_thread(entered.wait, 10)
        answer.cancel()
        with pytest.raises(asyncio.CancelledError):
            await answer
        release.set()

    with_client(server, use)


def test_at_least_one_attempt() -> None:
    with pytest.raises(ValueError, match="attempts"):
        SyncClient("127.0.0.1:1", attempts=0)
