"""Batches of both clients, against a real server round an engine in memory."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest

from moorage.batches.registry import BatchLimits
from moorage.rpc.listener import Listener, ListenerSettings
from moorage_client import (
    AlreadyExists,
    BatchItem,
    BatchOptions,
    BatchState,
    Client,
    InvalidRequest,
    ModelNotFound,
    SyncClient,
)
from moorage_client.outgoing import Outgoing
from tests.unit.rpc.echo_backend import EchoBackend
from tests.unit.rpc.running import batches_of, on_loop
from tests.unit.rpc.test_listener import echoing

DURABLE = BatchOptions(durable=True)


def item(number: int) -> BatchItem:
    return BatchItem({"x": np.full((1, 2), number, np.float32)}, f"item-{number}")


def items(count: int) -> Iterator[BatchItem]:
    return map(item, range(count))


@asynccontextmanager
async def serving(
    folder: Path, address: str = "127.0.0.1:0", backend: EchoBackend | None = None, window_items: int = 1024
) -> AsyncIterator[str]:
    """A server with a store; the address."""
    backend = backend or echoing()
    limits = BatchLimits(path=folder / "batches.db", fsync=False, window_items=window_items)
    batches = batches_of(backend, limits)
    await batches.start()
    listener = Listener(backend, ListenerSettings(address, "0.0.0"), batches)
    try:
        yield await listener.start()
    finally:
        await listener.stop(0.0)
        await batches.close()


@pytest.mark.parametrize("durable", [False, True])
@on_loop
async def test_every_result_comes_once_with_its_arrays(tmp_path: Path, durable: bool) -> None:
    async with serving(tmp_path) as address, Client(address) as client:
        batch = client.batch("nightly", "echo", items(700), BatchOptions(durable=durable, ordered=True))
        numbers = []
        async for result in batch:
            assert result.outputs["x"].tolist() == [[float(result.item_id.removeprefix("item-"))] * 2]
            numbers.append(int(result.item_id.removeprefix("item-")))
        assert numbers == list(range(700))
        assert batch.info is not None
        assert (batch.info.state, batch.info.counts.succeeded) == (BatchState.DONE, 700)
        assert batch.sequence == 700


@on_loop
async def test_items_may_come_one_by_one_and_without_ids(tmp_path: Path) -> None:
    async def trickle() -> AsyncIterator[BatchItem]:
        for number in range(20):
            yield BatchItem({"x": np.full((1, 2), number, np.float32)})
            await asyncio.sleep(0.001)

    async with serving(tmp_path) as address, Client(address) as client:
        found = {result.item_id async for result in client.batch("nightly", "echo", trickle())}
        assert found == {str(number) for number in range(20)}


@on_loop
async def test_an_item_that_fails_has_an_error_of_its_own(tmp_path: Path) -> None:
    wrong = BatchItem({"y": np.zeros((1, 2), np.float32)}, "wrong")
    async with serving(tmp_path) as address, Client(address) as client:
        results = {result.item_id: result async for result in client.batch("nightly", "echo", [item(1), wrong])}
        assert results["item-1"].error is None
        assert isinstance(results["wrong"].error, InvalidRequest)
        with pytest.raises(InvalidRequest, match="'y'"):
            results["wrong"].outputs  # noqa: B018


@on_loop
async def test_what_the_items_raise_is_raised_and_the_batch_stays(tmp_path: Path) -> None:
    def broken() -> Iterator[BatchItem]:
        yield item(0)
        raise LookupError("no more")

    unsendable = [item(0), BatchItem({"x": np.array([object()])}, "wrong")]
    async with serving(tmp_path) as address, Client(address) as client:
        with pytest.raises(LookupError, match="no more"):
            async for _ in client.batch("nightly", "echo", broken()):
                pass
        assert not (await client.batch_info("nightly")).complete
        with pytest.raises(InvalidRequest, match="'x'"):
            async for _ in client.batch("weekly", "echo", unsendable):
                pass
        results = [result async for result in client.batch("nightly", "echo", items(3))]
        assert {result.item_id for result in results} == {"item-0", "item-1", "item-2"}


@pytest.mark.parametrize("durable", [False, True])
@on_loop
async def test_a_lost_server_costs_no_result_and_repeats_none(tmp_path: Path, durable: bool) -> None:
    """It is lost in the middle, and another one stands at the same address."""
    seen: list[str] = []
    begun, count = asyncio.Event(), 3000

    async def submit(address: str) -> BatchState:
        async with Client(address) as client:
            batch = client.batch("nightly", "echo", items(count), BatchOptions(durable=durable))
            async for result in batch:
                seen.append(result.item_id)
                if len(seen) >= 500:
                    begun.set()
            assert batch.info is not None
            return batch.info.state

    async with serving(tmp_path) as address:
        submitting = asyncio.create_task(submit(address))
        await asyncio.wait_for(begun.wait(), 20.0)
    async with serving(tmp_path, address):
        assert await asyncio.wait_for(submitting, 30.0) is BatchState.DONE
    assert len(seen) == count
    assert len(set(seen)) == count


@on_loop
async def test_attaching_and_asking(tmp_path: Path) -> None:
    async with serving(tmp_path) as address, Client(address) as client:
        async for _ in client.batch("nightly", "echo", items(50), DURABLE):
            pass
        attached = client.attach("nightly", after_sequence=30)
        assert [result.sequence async for result in attached] == list(range(31, 51))
        assert [info.batch_id async for info in client.batches()] == ["nightly"]
        assert (await client.cancel_batch("nightly")).state is BatchState.DONE
        await client.delete_batch("nightly")
        with pytest.raises(ModelNotFound):
            await client.batch_info("nightly")
        with pytest.raises(ModelNotFound):
            async for _ in client.attach("nightly"):
                pass


@on_loop
async def test_another_batch_of_that_id_and_an_unknown_model_are_refused(tmp_path: Path) -> None:
    async with serving(tmp_path) as address, Client(address) as client:
        async for _ in client.batch("nightly", "echo", items(1)):
            pass
        for name, model, error in (("nightly", "any", AlreadyExists), ("weekly", "nothing", ModelNotFound)):
            with pytest.raises(error):
                async for _ in client.batch(name, model, items(1)):
                    pass


@on_loop
async def test_no_more_is_sent_than_the_server_has_room_for(tmp_path: Path) -> None:
    backend = echoing()
    backend.gate = asyncio.Event()
    asked = 0

    def counted() -> Iterator[BatchItem]:
        nonlocal asked
        for number in range(2000):
            asked += 1
            yield item(number)

    async with serving(tmp_path, backend=backend, window_items=20) as address, Client(address) as client:
        batch = client.batch("nightly", "echo", counted())
        reading = asyncio.create_task(_all(batch))
        await backend.entered.wait()
        await asyncio.sleep(0.3)
        assert (await client.batch_info("nightly")).counts.received <= 20
        assert asked <= 20 + 2 * 256 + 64
        backend.gate.set()
        assert len(await asyncio.wait_for(reading, 20.0)) == 2000


async def _all(batch: object) -> list[object]:
    return [result async for result in batch]  # type: ignore[attr-defined]


def test_what_need_not_be_sent_again_is_forgotten() -> None:
    async def trial() -> None:
        for until_result in (False, True):
            outgoing = Outgoing(items(10), until_result=until_result)
            reading = asyncio.create_task(outgoing.read())
            for _ in range(20):
                await asyncio.sleep(0)  # so that it is read ahead
            outgoing.begin_call()
            outgoing.allow(6)
            message = await outgoing.next_message()
            assert message is not None
            sent = [request.id for request in message.items.items]
            outgoing.acknowledge(2)
            outgoing.has_result("item-0")
            outgoing.begin_call()
            outgoing.allow(100)
            again = await outgoing.next_message()
            assert again is not None
            begin = 1 if until_result else 2
            assert [request.id for request in again.items.items][: len(sent) - begin] == sent[begin:]
            reading.cancel()

    asyncio.run(trial())


def test_the_blocking_client_has_batches_too(tmp_path: Path) -> None:
    async def serve(ready: asyncio.Future[str], done: asyncio.Event) -> None:
        async with serving(tmp_path) as address:
            ready.set_result(address)
            await done.wait()

    async def trial() -> None:
        ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        done = asyncio.Event()
        server = asyncio.create_task(serve(ready, done))
        await asyncio.to_thread(use, await ready)
        done.set()
        await server

    def use(address: str) -> None:
        with SyncClient(address) as client:
            batch = client.batch("nightly", "echo", items(300), DURABLE)
            assert len({result.item_id for result in batch}) == 300
            assert batch.info is not None
            assert batch.info.state is BatchState.DONE
            for _ in client.batch("weekly", "echo", items(300)):
                break  # leaving is no error
            assert {info.batch_id for info in client.batches()} == {"nightly", "weekly"}
            assert client.cancel_batch("weekly").state in (BatchState.CANCELLED, BatchState.DONE)
            client.delete_batch("nightly")
            with pytest.raises(ModelNotFound):
                list(client.attach("nightly"))

    asyncio.run(trial())
