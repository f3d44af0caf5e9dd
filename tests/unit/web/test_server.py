"""The HTTP side, from outside, over a real socket."""

import asyncio
import logging
import signal
import socket
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import PurePath

import httpx
import pytest

from moorage.domain.model import ModelKey, ModelSpec, ModelState
from moorage.engine.snapshot import BrokenModel, ModelSnapshot, ModelStatistics, ServerSnapshot
from moorage.web import HttpServer

READY = ServerSnapshot(models=(), broken=(), devices=(), ready=True, draining=False)


def model(name: str, *, ready: bool, reason: str = "") -> ModelSnapshot:
    return ModelSnapshot(
        key=ModelKey(name, 2),
        spec=ModelSpec(name, 2, "simulated", (), (), PurePath()),
        state=ModelState.RESIDENT if ready else ModelState.LOADING,
        ready=ready,
        reason=reason,
        device=None,
        leased_bytes={},
        waiting_rows=0,
        statistics=ModelStatistics(),
    )


def with_server(snapshot: ServerSnapshot, use: Callable[[httpx.AsyncClient], Awaitable[None]]) -> None:
    async def run() -> None:
        server = HttpServer("127.0.0.1", 0, lambda: snapshot)
        address = await server.start()
        try:
            async with httpx.AsyncClient(base_url=f"http://{address}", trust_env=False) as client:
                await use(client)
        finally:
            await server.stop(1.0)

    asyncio.run(run())


def test_a_ready_server() -> None:
    async def use(client: httpx.AsyncClient) -> None:
        assert (await client.get("/healthz")).status_code == 200
        response = await client.get("/readyz")
        assert response.status_code == 200
        assert response.json() == {"ready": True, "draining": False, "not_ready": [], "broken": []}

    with_server(READY, use)


def test_a_server_that_is_not_ready_says_why() -> None:
    snapshot = replace(
        READY,
        ready=False,
        draining=True,
        models=(model("mlp", ready=True), model("vad", ready=False, reason="waits for memory")),
        broken=(BrokenModel("bad", "no version folder"),),
    )

    async def use(client: httpx.AsyncClient) -> None:
        assert (await client.get("/healthz")).status_code == 200
        response = await client.get("/readyz")
        assert response.status_code == 503
        assert response.json() == {
            "ready": False,
            "draining": True,
            "not_ready": [{"name": "vad", "version": 2, "state": "loading", "reason": "waits for memory"}],
            "broken": [{"name": "bad", "reason": "no version folder"}],
        }

    with_server(snapshot, use)


def test_wrong_paths_and_methods() -> None:
    async def use(client: httpx.AsyncClient) -> None:
        assert (await client.get("/nothing")).status_code == 404
        assert (await client.get("/healthz/..%2f")).status_code == 404
        assert (await client.post("/healthz")).status_code == 405
        assert (await client.delete("/readyz")).status_code == 405
        assert (await client.head("/readyz")).status_code == 200

    with_server(READY, use)


def test_no_line_in_the_log_per_request(caplog: pytest.LogCaptureFixture) -> None:
    async def use(client: httpx.AsyncClient) -> None:
        await client.get("/healthz")

    with caplog.at_level(logging.INFO, logger="uvicorn.access"):
        with_server(READY, use)
    assert not [record for record in caplog.records if record.name == "uvicorn.access"]


def test_signals_are_left_alone() -> None:
    before = (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT))

    async def run() -> None:
        during = (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT))
        server = HttpServer("127.0.0.1", 0, lambda: READY)
        await server.start()
        assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == during
        await server.stop(1.0)

    asyncio.run(run())
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


def test_an_address_that_is_taken_is_an_oserror() -> None:
    async def run() -> None:
        first = HttpServer("127.0.0.1", 0, lambda: READY)
        port = int((await first.start()).rpartition(":")[2])
        with pytest.raises(OSError, match="in use"):
            await HttpServer("127.0.0.1", port, lambda: READY).start()
        await first.stop(1.0)

    asyncio.run(run())


def test_a_host_that_does_not_exist_is_an_oserror() -> None:
    async def run() -> None:
        with pytest.raises(OSError, match=r"."):
            await HttpServer("256.256.256.256", 0, lambda: READY).start()

    asyncio.run(run())


def test_the_port_is_free_after_stop_even_with_a_connection_left_open() -> None:
    async def run() -> None:
        server = HttpServer("127.0.0.1", 0, lambda: READY)
        host, _, port = (await server.start()).rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET /healthz HTTP/1.1\r\n")  # and never the rest
        await writer.drain()
        async with asyncio.timeout(10):
            await server.stop(1.0)
            await reader.read()  # ends: the server has closed it
        writer.close()
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, int(port)))

    asyncio.run(run())


def test_more_connections_than_probes_need_are_turned_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moorage.web.server._MAX_CONNECTIONS", 3)

    async def run() -> None:
        server = HttpServer("127.0.0.1", 0, lambda: READY)
        address = await server.start()
        host, _, port = address.rpartition(":")
        idle = [await asyncio.open_connection(host, int(port)) for _ in range(3)]
        async with httpx.AsyncClient(base_url=f"http://{address}", trust_env=False) as client:
            assert (await client.get("/healthz")).status_code == 503
        for _, writer in idle:
            writer.close()
            await writer.wait_closed()
        async with httpx.AsyncClient(base_url=f"http://{address}", trust_env=False) as client:
            assert (await client.get("/healthz")).status_code == 200
        await server.stop(1.0)

    asyncio.run(run())


def test_stop_without_start_does_nothing() -> None:
    asyncio.run(HttpServer("127.0.0.1", 0, lambda: READY).stop(1.0))
