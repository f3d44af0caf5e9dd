"""Batches on a real server: what is acknowledged and what is answered survives whatever dies."""

import asyncio
import random
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import grpc
import grpc.aio
import numpy as np
import psutil
import pytest

from moorage_client import BatchCounts, BatchItem, BatchOptions, BatchResult, BatchState, Client
from moorage_protocol import inference, moorage_v1
from tests.support.calls import calls_to
from tests.support.polling import eventually
from tests.support.running_server import RunningServer, running_server
from tests.support.toy_models import DEDICATED, ECHO, EXPLICIT, write_python_model
from tests.support.worker_processes import kill, load_alone, pids

DURABLE = BatchOptions(durable=True)
MIB = 2**20
WIDE = bytes(64 * 1024)


def item(number: int) -> BatchItem:
    return BatchItem({"x": np.full((1, 4), number, np.float32)}, f"item-{number}")


def items(count: int) -> Iterator[BatchItem]:
    return (item(number) for number in range(count))


@pytest.fixture
def models(tmp_path: Path) -> Path:
    folder = tmp_path / "models"
    write_python_model(folder, "echo", ECHO, max_batch_size=64)
    write_python_model(folder, "alone", ECHO, top=EXPLICIT, extra=DEDICATED)
    write_python_model(folder, "wide", ECHO, shape="[16384]")
    return folder


class Results:
    """What became of items numbered from 0, each exactly once."""

    def __init__(self) -> None:
        self.numbers: list[int] = []

    def add(self, result: BatchResult) -> None:
        assert result.error is None, result.error
        number = int(result.item_id.removeprefix("item-"))
        assert result.outputs["y"].tolist() == [[number] * 4]
        self.numbers.append(number)

    def check(self, count: int) -> None:
        assert len(self.numbers) == count
        assert set(self.numbers) == set(range(count))


@pytest.mark.parametrize("durable", [True, False])
def test_a_server_that_is_killed_thrice_gives_every_result_once(models: Path, tmp_path: Path, durable: bool) -> None:
    """A batch that is not durable begins anew with its server: its client sends what has no result yet."""
    count, results, randomly = 20_000, Results(), random.Random(7)

    async def submit(address: str, told: threading.Event) -> None:
        async with Client(address) as client:
            batch = client.batch("nightly", "echo", items(count), BatchOptions(durable=durable, ordered=True))
            async for result in batch:
                results.add(result)
                if len(results.numbers) >= stops[0]:
                    stops.pop(0)
                    told.set()
            assert batch.info is not None
            assert batch.info.state is BatchState.DONE

    stops = [*(randomly.randrange(number * 5000, number * 5000 + 4000) for number in range(3)), count + 1]
    told, address = threading.Event(), "127.0.0.1:0"
    thread: threading.Thread | None = None
    for life in range(4):
        with running_server(models, tmp_path, grpc=address) as server:
            address = server.grpc
            if thread is None:
                thread = threading.Thread(target=asyncio.run, args=(submit(address, told),))
                thread.start()
            if life == 3:
                thread.join(60.0)
                break
            assert told.wait(60.0)
            told.clear()
            server.process.kill()
            server.process.wait(5.0)
    results.check(count)
    assert results.numbers == sorted(results.numbers)


def test_a_worker_that_is_killed_costs_no_item(models: Path, tmp_path: Path) -> None:
    count, results, killed = 4000, Results(), set[int]()

    async def submit(server: RunningServer, shared: set[int]) -> None:
        async with Client(server.grpc) as client:
            async for result in client.batch("nightly", "alone", items(count), DURABLE):
                results.add(result)
                if len(results.numbers) in (500, 1500, 2500):
                    (pid,) = pids(server) - shared - killed
                    killed.add(pid)
                    await asyncio.to_thread(kill, pid)

    with running_server(models, tmp_path) as server, calls_to(server.grpc) as calls:
        eventually(calls.is_ready, within_s=50.0, what="the server is ready")
        alone = load_alone(server, calls, "alone")
        asyncio.run(submit(server, pids(server) - {alone}))
    assert len(killed) == 3
    results.check(count)


def test_memory_is_flat_however_long_a_durable_batch_is(models: Path, tmp_path: Path) -> None:
    count, results, resident = 20_000, Results(), dict[int, int]()

    async def submit(server: RunningServer) -> None:
        process = psutil.Process(server.pid)
        async with Client(server.grpc) as client:
            async for result in client.batch("nightly", "echo", items(count), DURABLE):
                results.add(result)
                if len(results.numbers) % 1000 == 0:
                    resident[len(results.numbers)] = process.memory_info().rss

    with running_server(models, tmp_path) as server:
        asyncio.run(submit(server))
    results.check(count)
    assert max(resident.values()) - resident[4000] < 16 * MIB


def test_a_client_that_reads_nothing_is_not_read_from(models: Path, tmp_path: Path) -> None:
    """Items of 64 KB, offered at once to a batch that is not durable: the window holds, and others are served."""
    window_items = 200
    environment = {"MOORAGE_BATCHES__MAX_WINDOW_ITEMS": str(window_items)}
    sent = 0

    async def submit(server: RunningServer) -> None:
        nonlocal sent
        before = psutil.Process(server.pid).memory_info().rss
        async with grpc.aio.insecure_channel(server.grpc) as channel, Client(server.grpc) as client:
            call = submission(channel)
            header = moorage_v1.BatchHeader(batch_id="flood", model_name="wide")
            await call.write(moorage_v1.SubmitRequest(header=header))
            flooding = asyncio.create_task(flood(call))
            counts = BatchCounts()
            for _ in range(60):
                await asyncio.sleep(0.05)
                assert (await client.infer("echo", {"x": np.zeros((1, 4), np.float32)}))["y"].shape == (1, 4)
                before_counts, counts = counts, (await client.batch_info("flood")).counts
                assert counts.received - counts.finished <= window_items
            assert window_items <= counts.received == before_counts.received
            assert not flooding.done()
            grown = psutil.Process(server.pid).memory_info().rss - before
            assert grown < 2 * window_items * len(WIDE) + 32 * MIB
            flooding.cancel()
            call.cancel()

    async def flood(call: "grpc.aio.StreamStreamCall[moorage_v1.SubmitRequest, moorage_v1.SubmitResponse]") -> None:
        nonlocal sent
        for number in range(100_000):
            request = inference.ModelInferRequest(id=f"item-{number}")
            request.inputs.add(name="x", datatype="FP32", shape=[1, 16384])
            request.raw_input_contents.append(WIDE)
            await call.write(moorage_v1.SubmitRequest(items=moorage_v1.BatchItems(items=[request])))
            sent += 1

    with running_server(models, tmp_path, environment=environment) as server:
        asyncio.run(submit(server))
    assert sent * len(WIDE) < 2 * window_items * len(WIDE) + 32 * MIB


def submission(
    channel: "grpc.aio.Channel",
) -> "grpc.aio.StreamStreamCall[moorage_v1.SubmitRequest, moorage_v1.SubmitResponse]":
    submit: grpc.aio.StreamStreamMultiCallable[moorage_v1.SubmitRequest, moorage_v1.SubmitResponse]
    submit = channel.stream_stream(
        "/moorage.v1.BatchService/Submit",
        request_serializer=moorage_v1.SubmitRequest.SerializeToString,
        response_deserializer=moorage_v1.SubmitResponse.FromString,
    )
    return submit()


def test_a_store_without_room_acknowledges_nothing_that_it_has_not(models: Path, tmp_path: Path) -> None:
    async def submit(server: RunningServer) -> tuple[grpc.StatusCode, int, int]:
        async with grpc.aio.insecure_channel(server.grpc) as channel, Client(server.grpc) as client:
            await client.unload("wide")  # so that items wait, and stay
            call = submission(channel)
            header = moorage_v1.BatchHeader(batch_id="large", model_name="wide", durable=True)
            await call.write(moorage_v1.SubmitRequest(header=header))
            writing = asyncio.create_task(write_until_it_fails(call))
            acknowledged = 0
            try:
                async for message in call:
                    for event in message.events:
                        acknowledged = max(acknowledged, event.acknowledged.items)
            except grpc.aio.AioRpcError as error:
                await writing
                return error.code(), acknowledged, (await client.batch_info("large")).counts.received
            raise AssertionError("the store took everything")

    async def write_until_it_fails(
        call: "grpc.aio.StreamStreamCall[moorage_v1.SubmitRequest, moorage_v1.SubmitResponse]",
    ) -> None:
        for number in range(1000):
            request = inference.ModelInferRequest(id=f"item-{number}", raw_input_contents=[WIDE])
            try:
                await call.write(moorage_v1.SubmitRequest(items=moorage_v1.BatchItems(items=[request])))
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
                return

    environment = {"MOORAGE_BATCHES__MAX_STORE": "4 MiB"}
    with running_server(models, tmp_path, environment=environment) as server, calls_to(server.grpc) as calls:
        eventually(calls.is_ready, within_s=50.0, what="the server is ready")
        code, acknowledged, received = asyncio.run(submit(server))
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert 10 <= acknowledged <= received < 64


def test_a_batch_goes_on_while_nobody_listens_and_across_a_drain(models: Path, tmp_path: Path) -> None:
    """The client leaves after the last item is acknowledged; the server is stopped in order, and another goes on."""
    count = 5000

    async def leave(address: str) -> None:
        async with Client(address) as client:
            batch = client.batch("nightly", "echo", items(count), DURABLE)
            async for _ in batch:
                if batch.progress is not None and batch.progress.counts.received == count:
                    break
                if (await client.batch_info("nightly")).complete:
                    break

    async def come_back(address: str) -> tuple[BatchState, Results]:
        async with Client(address) as client:
            results, batch = Results(), client.attach("nightly")
            async for result in batch:
                results.add(result)
            assert batch.info is not None
            return batch.info.state, results

    with running_server(models, tmp_path) as server:
        asyncio.run(leave(server.grpc))
        assert server.terminate() == 0
    with running_server(models, tmp_path) as server:
        state, results = asyncio.run(come_back(server.grpc))
    assert state is BatchState.DONE
    results.check(count)


async def _endless() -> AsyncIterator[BatchItem]:
    number = 0
    while True:
        yield item(number)
        number += 1
        await asyncio.sleep(0.001)


def test_a_cancelled_batch_ends_for_everybody(models: Path, tmp_path: Path) -> None:
    async def submit(address: str) -> None:
        async with Client(address) as client:
            batch = client.batch("endless", "echo", _endless(), DURABLE)
            told = 0
            async for _ in batch:
                told += 1
                if told == 50:
                    assert (await client.cancel_batch("endless")).state is BatchState.CANCELLED
            assert batch.info is not None
            assert batch.info.state is BatchState.CANCELLED
            assert batch.info.counts.received == batch.info.counts.finished + batch.info.counts.cancelled
            await client.delete_batch("endless")
            assert [info async for info in client.batches()] == []

    with running_server(models, tmp_path) as server:
        asyncio.run(submit(server.grpc))
        eventually(lambda: "Traceback" not in server.logs, what="no traceback in the log")
