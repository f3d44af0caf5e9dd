"""A request that is computed in pieces is one request to its caller, to the statistics, and to who drains."""

import asyncio
from dataclasses import replace

import pytest

from moorage.domain.errors import ContractBroken, InferenceFailed, InvalidRequest
from moorage.domain.model import BatchingPolicy, ModelKey
from moorage.domain.request import BatchOutput, InferenceRequest, RunResult
from moorage.domain.tensor import Datatype, InputTensor, OutputTensor
from moorage.engine.backend import Backend
from moorage.engine.catalog import Catalog, Serving
from moorage.engine.control import Control
from moorage.engine.joining import Joining
from moorage.scheduling.actions import Run
from moorage.scheduling.events import ModelRegistered, RunFailed, RunFinished
from tests.support.scheduling import RESULT, make_request
from tests.unit.engine.test_engine import SPEC, House, content, with_house

KEY = ModelKey("split", 1)
SPLIT = replace(SPEC, name="split", max_batch_size=4, batching=BatchingPolicy(0.0, split_requests=True))


async def serve_split(house: House) -> None:
    house.engine.post(ModelRegistered(KEY, SPLIT))
    await house.engine.load(KEY)


def request(house: House, values: bytes, outputs: tuple[str, ...] = ()) -> InferenceRequest:
    """One row for every byte."""
    tensor = InputTensor("x", Datatype.UINT8, (len(values), 1), values)
    alone = house.request(0, key=KEY)
    return replace(alone, inputs=(tensor,), rows=len(values), size_bytes=len(values), outputs=outputs)


def ask(house: House, values: bytes) -> asyncio.Task[bytes]:
    return asyncio.create_task(house.engine.infer(request(house, values), content))


async def finish_next(house: House) -> None:
    house.workers.finish(house.workers.runs.pop(0))
    await house.settle()


def finish_shaped(house: House, run: Run, *widths: int) -> None:
    """A run ends whose outputs y, z, … have so many columns."""
    outputs = tuple(
        BatchOutput(name, Datatype.UINT8, (run.rows, width), memoryview(bytes(run.rows * width)), (run.rows * width,))
        for name, width in zip("yz", widths, strict=False)
    )
    house.engine.post(RunFinished(run.run_id, RunResult(outputs, 1, 2, 3)))


def test_it_gets_all_its_rows_in_their_order_with_those_of_others_between() -> None:
    async def scenario(house: House) -> None:
        await serve_split(house)
        large = ask(house, bytes(range(10)))
        await house.settle()
        small = ask(house, b"\x63")
        for _ in range(3):
            await finish_next(house)
        assert await large == bytes(range(10))
        assert await small == b"\x63"
        counted = house.engine.statistics.of(KEY)
        assert (counted.success.count, counted.fail.count, counted.queue.count) == (2, 0, 2)
        assert (counted.inference_count, counted.execution_count) == (11, 3)
        assert counted.compute_infer.count == 2
        assert counted.compute_infer.ns == 4 * 2, "one is charged for its three runs, the other for the one it shared"
        assert {rows: sizes.compute_infer.count for rows, sizes in counted.batches.items()} == {3: 1, 4: 2}
        assert house.engine.is_idle

    with_house(scenario)


def test_a_run_that_computed_two_of_its_pieces_is_charged_once() -> None:
    joining = Joining(make_request(1, rows=4), started_s=0.0)
    for run_id in (1, 1, 2):
        joining.ran(run_id, RESULT)
    assert (joining.input_ns, joining.infer_ns, joining.output_ns) == (2, 4, 6)


def test_it_has_queued_until_its_first_piece_ran() -> None:
    async def scenario(house: House) -> None:
        await serve_split(house)
        task = ask(house, bytes(8))
        await house.settle()
        await asyncio.sleep(0.05)
        await finish_next(house)
        await finish_next(house)
        await task
        counted = house.engine.statistics.of(KEY)
        assert counted.success.ns > 50_000_000 > counted.queue.ns

    with_house(scenario)


def test_the_first_failure_is_told_at_once_and_counted_once() -> None:
    async def scenario(house: House) -> None:
        await serve_split(house)
        task = ask(house, bytes(12))
        await house.settle()
        await finish_next(house)
        house.engine.post(RunFailed(house.workers.runs.pop(0).run_id, InferenceFailed("split", "id1")))
        with pytest.raises(InferenceFailed):
            await task
        assert not house.workers.runs
        counted = house.engine.statistics.of(KEY)
        assert (counted.success.count, counted.fail.count, counted.inference_count) == (0, 1, 0)
        assert house.engine.is_idle

    with_house(scenario)


def test_a_cancelled_caller_leaves_nothing_behind() -> None:
    async def scenario(house: House) -> None:
        await serve_split(house)
        task = ask(house, bytes(12))
        await house.settle()
        await finish_next(house)
        task.cancel()
        await house.settle()
        await finish_next(house)
        assert not house.workers.runs, "the third piece does not run"
        assert not house.engine.scheduler.state.split
        assert not house.engine._tickets._joining
        assert house.engine.is_idle

    with_house(scenario)


def test_pieces_whose_outputs_can_not_be_put_together_fail_the_request_alone() -> None:
    async def scenario(house: House) -> None:
        await serve_split(house)
        large, small = ask(house, bytes(10)), ask(house, b"\x63")
        await house.settle()
        finish_shaped(house, house.workers.runs.pop(0), 3)
        await house.settle()
        finish_shaped(house, house.workers.runs.pop(0), 5)
        with pytest.raises(ContractBroken) as failure:
            await large
        assert failure.value.reason == (
            "output 'y': expected one shape beyond the rows for all pieces of a split request, got [3] and [5]"
        )
        await house.settle()
        await finish_next(house)
        while house.workers.runs:
            await finish_next(house)
        assert await small == b"\x63"
        assert house.engine.statistics.of(KEY).fail.count == 1
        assert not house.engine.scheduler.state.split

    with_house(scenario)


def test_outputs_that_are_not_asked_for_are_not_kept_nor_compared() -> None:
    async def scenario(house: House) -> None:
        await serve_split(house)

        def shapes(outputs: tuple[OutputTensor, ...]) -> list[tuple[str, tuple[int, ...]]]:
            return [(output.name, output.shape) for output in outputs]

        task = asyncio.create_task(house.engine.infer(request(house, bytes(8), outputs=("z",)), shapes))
        await house.settle()
        for width in (3, 5):
            finish_shaped(house, house.workers.runs.pop(0), width, 2)
            await house.settle()
        assert await task == [("z", (8, 2))]

    with_house(scenario)


def test_who_drains_waits_for_all_pieces() -> None:
    async def scenario(house: House) -> None:
        await serve_split(house)
        task = ask(house, bytes(range(8)))
        await house.settle()
        draining = asyncio.create_task(house.engine.drain(5.0))
        await finish_next(house)
        assert not draining.done()
        await finish_next(house)
        assert await draining
        assert await task == bytes(range(8))

    with_house(scenario)


def test_explaining_takes_as_many_rows_as_a_request_may_have() -> None:
    async def scenario(house: House) -> None:
        await serve_split(house)
        catalog = Catalog()
        catalog.put(Serving(KEY, SPLIT))
        backend = Backend(house.engine, catalog, Control(house.engine, catalog, repository=None))  # type: ignore[arg-type]
        assert backend.explain("split", "", 256, 0).rows == 256
        with pytest.raises(InvalidRequest, match="rows: expected from 1 to max_queue_rows 256, got 257"):
            backend.explain("split", "", 257, 0)

    with_house(scenario)
