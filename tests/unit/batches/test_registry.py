"""Batches round an engine in memory: run, gone on with, ended, found and forgotten."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from moorage.batches.batch import Batch, BatchView
from moorage.batches.header import Header, RetryPolicy
from moorage.batches.items import BatchState, Outcome, Submitted
from moorage.batches.registry import Batches, BatchLimits
from moorage.domain.batch_errors import BatchActive, BatchEnded, BatchExists, BatchNotFound, TooManyBatches
from moorage.domain.errors import ModelNotReady, QueueFull, WorkerLost
from moorage_protocol import inference as pb
from tests.unit.rpc.echo_backend import EchoBackend
from tests.unit.rpc.messages import raw_request
from tests.unit.rpc.running import batches_of, on_loop
from tests.unit.rpc.test_listener import echoing

HEADER = Header("nightly", "echo")
EVERYTHING = (float("inf"), "")


def item(number: int, *, model: str = "") -> Submitted:
    request = raw_request(model, ("x", "FP32", [1, 2], number.to_bytes(8, "little")), id=f"item-{number}")
    return Submitted(f"item-{number}", request.SerializeToString())


def items(begin: int, end: int) -> list[Submitted]:
    return [item(number) for number in range(begin, end)]


def answered(outcome: Outcome) -> int:
    """The number that an item echoed."""
    assert not outcome.failed
    answer = pb.ModelInferResponse.FromString(outcome.content[2:])
    assert answer.id == outcome.item_id
    return int.from_bytes(answer.raw_output_contents[0], "little")


def code(outcome: Outcome) -> int:
    assert outcome.failed
    return outcome.content[outcome.content.index(b"\x08") + 1]


async def read(batch: Batch, after_sequence: int = 0) -> list[Outcome]:
    """Its outcomes, up to its end."""
    found: list[Outcome] = []
    with batch.reading(after_sequence) as reader:
        while not reader.is_at_end:
            outcomes = await reader.outcomes()
            reader.took(outcomes)
            found += outcomes
            if not outcomes:
                await asyncio.wait_for(reader.wait(0.1), 5.0)
    return found


@asynccontextmanager
async def batches(backend: EchoBackend, limits: BatchLimits | None = None) -> AsyncIterator[Batches]:
    registry = batches_of(backend, limits)
    await registry.start()
    try:
        yield registry
    finally:
        await registry.close()


def stored(folder: Path) -> BatchLimits:
    return BatchLimits(path=folder / "batches.db", fsync=False)


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("ordered", [False, True])
@on_loop
async def test_every_item_has_one_answer(tmp_path: Path, ordered: bool, durable: bool) -> None:
    async with batches(echoing(), stored(tmp_path)) as registry:
        batch = await registry.open(replace(HEADER, ordered=ordered, durable=durable))
        reading = asyncio.create_task(read(batch))
        for begin in range(0, 500, 50):
            await batch.add(items(begin, begin + 50))
        await batch.complete()
        outcomes = await asyncio.wait_for(reading, 20.0)
        numbers = [answered(outcome) for outcome in outcomes]
        assert sorted(numbers) == list(range(500))
        assert not ordered or numbers == sorted(numbers)
        assert [outcome.sequence for outcome in outcomes] == list(range(1, 501))
        assert batch.state is BatchState.DONE
        assert await read(batch, 500) == []


@on_loop
async def test_what_is_wrong_with_an_item_costs_it_alone(tmp_path: Path) -> None:
    async with batches(echoing()) as registry:
        batch = await registry.open(HEADER)
        garbage = Submitted("garbage", b"\xff\xff\xff")
        await batch.add([item(0), garbage, item(1, model="other"), item(2, model="echo"), Submitted("empty", b"")])
        await batch.complete()
        outcomes = {outcome.item_id: outcome for outcome in await read(batch)}
        assert [answered(outcomes[name]) for name in ("item-0", "item-2")] == [0, 2]
        assert [code(outcomes[name]) for name in ("garbage", "item-1", "empty")] == [3, 3, 3]  # INVALID_ARGUMENT


@on_loop
async def test_the_engine_has_no_more_than_keeps_it_busy() -> None:
    backend = echoing()
    backend.gate = asyncio.Event()
    async with batches(backend) as registry:
        batch = await registry.open(HEADER)
        await batch.add(items(0, 200))
        await asyncio.sleep(0.05)
        assert 1 <= len(backend.requests) <= 32
        assert batch.view().under_way.running == len(backend.requests)
        backend.gate.set()
        await batch.complete()
        assert len(await read(batch)) == 200


@on_loop
async def test_what_may_be_tried_again_is_and_what_fails_too_often_is_told() -> None:
    backend = echoing()
    backend.failure = WorkerLost("killed", retry_after_s=0.0)
    async with batches(backend) as registry:
        policy = RetryPolicy(attempts=3, first_backoff_s=0.02, max_backoff_s=0.02)
        batch = await registry.open(replace(HEADER, retry=policy))
        await batch.add(items(0, 3))
        await batch.complete()
        outcomes = await read(batch)
        assert [code(outcome) for outcome in outcomes] == [14] * 3  # UNAVAILABLE
        assert len(backend.requests) == 9
        assert batch.view().counts.failed == 3


@pytest.mark.parametrize(
    "refusal",
    [
        QueueFull("echo", unit="rows", waiting=1, asked=1, limit=1, retry_after_s=0.05),
        ModelNotReady("echo", "loading", retry_after_s=0.05),
    ],
)
@on_loop
async def test_a_batch_waits_for_room_and_for_its_model_however_long(refusal: Exception) -> None:
    backend = echoing()
    backend.failure = refusal
    async with batches(backend) as registry:
        batch = await registry.open(replace(HEADER, retry=RetryPolicy(attempts=1)))
        await batch.add(items(0, 5))
        await batch.complete()
        reading = asyncio.create_task(read(batch))
        await asyncio.sleep(0.3)
        assert not reading.done()
        backend.failure = None
        assert sorted(answered(outcome) for outcome in await asyncio.wait_for(reading, 5.0)) == list(range(5))


@on_loop
async def test_a_cancelled_batch_gives_up_what_runs() -> None:
    backend = echoing()
    backend.gate = asyncio.Event()
    async with batches(backend) as registry:
        batch = await registry.open(HEADER)
        await batch.add(items(0, 100))
        await backend.entered.wait()
        assert (await registry.cancel("nightly")).state is BatchState.CANCELLED
        await asyncio.wait_for(backend.cancelled.wait(), 5.0)
        assert batch.view().counts.cancelled == 100
        assert await read(batch) == []
        await registry.cancel("nightly")
        with pytest.raises(BatchNotFound):
            await registry.cancel("other")


@on_loop
async def test_a_batch_expires() -> None:
    backend = echoing()
    backend.gate = asyncio.Event()
    async with batches(backend) as registry:
        batch = await registry.open(replace(HEADER, timeout_s=0.1))
        await batch.add(items(0, 10))
        assert await read(batch) == []
        assert batch.state is BatchState.EXPIRED
        assert batch.view().counts.cancelled == 10


@pytest.mark.parametrize("ordered", [False, True])
@on_loop
async def test_a_durable_batch_goes_on_with_the_next_server(tmp_path: Path, ordered: bool) -> None:
    header, limits = replace(HEADER, durable=True, ordered=ordered), stored(tmp_path)
    seen: list[Outcome] = []
    async with batches(echoing(), limits) as registry:
        batch = await registry.open(header)
        await batch.add(items(0, 300))
        with batch.reading(0) as reader:
            while len(seen) < 50:
                outcomes = await reader.outcomes()
                reader.took(outcomes)
                seen += outcomes
                await reader.wait(0.1)
    async with batches(echoing(), limits) as registry:
        batch = await registry.open(header)
        assert (await batch.add(items(290, 310))).duplicates == 10
        await batch.complete()
        seen += await read(batch, len(seen))
        numbers = [answered(outcome) for outcome in seen]
        assert sorted(numbers) == list(range(310))
        assert not ordered or numbers == sorted(numbers)
    async with batches(echoing(), limits) as registry:
        ended = await registry.find("nightly")
        assert ended.state is BatchState.DONE
        assert len(await read(ended)) == 310


@on_loop
async def test_an_id_means_one_batch(tmp_path: Path) -> None:
    async with batches(echoing(), stored(tmp_path)) as registry:
        batch = await registry.open(HEADER)
        assert await registry.open(HEADER) is batch
        with pytest.raises(BatchExists):
            await registry.open(replace(HEADER, priority=4))
        with pytest.raises(BatchNotFound):
            await registry.find("other")


@on_loop
async def test_after_the_last_item_only_known_ones_are_taken() -> None:
    async with batches(echoing()) as registry:
        batch = await registry.open(HEADER)
        await batch.add(items(0, 3))
        await batch.complete()
        assert (await batch.add(items(0, 3))).duplicates == 3
        with pytest.raises(BatchEnded):
            await batch.add(items(2, 4))


@pytest.mark.parametrize("durable", [False, True])
@on_loop
async def test_only_a_batch_that_has_ended_is_deleted(tmp_path: Path, durable: bool) -> None:
    async with batches(echoing(), stored(tmp_path)) as registry:
        batch = await registry.open(replace(HEADER, durable=durable))
        with pytest.raises(BatchActive):
            await registry.delete("nightly")
        await batch.complete()
        await read(batch)
        await registry.delete("nightly")
        with pytest.raises(BatchNotFound):
            await registry.find("nightly")


@on_loop
async def test_there_are_so_many_at_once() -> None:
    async with batches(echoing(), BatchLimits(max_running=2)) as registry:
        await registry.open(replace(HEADER, batch_id="a"))
        await registry.open(replace(HEADER, batch_id="b"))
        with pytest.raises(TooManyBatches):
            await registry.open(replace(HEADER, batch_id="c"))
        await registry.cancel("a")
        await registry.open(replace(HEADER, batch_id="c"))


@on_loop
async def test_batches_are_listed_by_age_and_labels(tmp_path: Path) -> None:
    async with batches(echoing(), stored(tmp_path)) as registry:
        for number in range(6):
            labels = {"team": "search" if number % 2 else "ads"}
            name = f"batch-{number}"
            batch = await registry.open(replace(HEADER, batch_id=name, durable=number < 4, labels=labels))
            if number < 3:
                await batch.complete()
                await read(batch)
        assert ids(await registry.newest(EVERYTHING, 10, {})) == [5, 4, 3, 2, 1, 0]
        assert ids(await registry.newest(EVERYTHING, 10, {"team": "search"})) == [5, 3, 1]
        page = await registry.newest(EVERYTHING, 4, {})
        last = page[-1]
        assert ids(await registry.newest((last.created_at_s, last.header.batch_id), 4, {})) == [1, 0]


def ids(views: list[BatchView]) -> list[int]:
    return [int(view.header.batch_id.removeprefix("batch-")) for view in views]
