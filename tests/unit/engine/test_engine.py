"""The engine without processes: tickets complete exactly once, whatever happens to their callers."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import PurePath

import pytest

from moorage.domain.errors import DeadlineExceeded, InferenceFailed, ModelNotFound, ServerDraining
from moorage.domain.model import ModelKey, ModelSpec
from moorage.domain.request import InferenceRequest
from moorage.domain.tensor import Datatype, InputTensor, OutputTensor, TensorSpec
from moorage.engine.engine import Engine
from moorage.scheduling.events import ModelRegistered, RunFailed
from moorage.scheduling.scheduler import Scheduler
from moorage.scheduling.state import DeviceLimits
from tests.support.instant_workers import InstantWorkers

KEY = ModelKey("m", 1)
SPEC = ModelSpec(
    name="m",
    version=1,
    runtime="python",
    inputs=(TensorSpec("x", "UINT8", [1]),),
    outputs=(TensorSpec("y", "UINT8", [1]),),
    path=PurePath("m/1"),
    max_batch_size=8,
)


class House:
    """An engine with one loaded model."""

    def __init__(self) -> None:
        self.engine = Engine(Scheduler({"cpu": DeviceLimits(1000)}), check_integrity=True)
        self.workers = InstantWorkers(self.engine.post)
        self.engine.attach(self.workers)
        self.owner = asyncio.create_task(self.engine.run())

    async def start(self) -> None:
        self.engine.post(ModelRegistered(KEY, SPEC))
        await self.engine.load(KEY)

    def request(self, value: int, *, timeout_s: float = 30.0, key: ModelKey = KEY) -> InferenceRequest:
        now = self.engine.now()
        tensor = InputTensor("x", Datatype.UINT8, (1, 1), bytes([value]))
        return InferenceRequest(
            self.engine.next_request_id(), "", key, (tensor,), 1, 1, now, now + timeout_s, batch_key="any"
        )

    def ask(self, value: int, **options: float) -> asyncio.Task[bytes]:
        return asyncio.create_task(self.engine.infer(self.request(value, **options), content))  # type: ignore[arg-type]

    async def settle(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)


def content(outputs: tuple[OutputTensor, ...]) -> bytes:
    return bytes(outputs[0].data)


def with_house(scenario: Callable[[House], Awaitable[None]]) -> None:
    async def run() -> None:
        house = House()
        await house.start()
        await scenario(house)
        house.owner.cancel()
        await asyncio.gather(house.owner, return_exceptions=True)

    asyncio.run(run())


def test_members_of_a_run_get_their_own_rows() -> None:
    async def scenario(house: House) -> None:
        first = house.ask(1)
        await house.settle()
        others = [house.ask(value) for value in (2, 3, 4)]
        await house.settle()
        house.workers.finish(house.workers.runs[0])
        assert await first == b"\1"
        await house.settle()
        assert [len(run.entries) for run in house.workers.runs] == [1, 3]
        house.workers.finish(house.workers.runs[1])
        assert await asyncio.gather(*others) == [b"\2", b"\3", b"\4"]
        statistics = house.engine.statistics.of(KEY)
        assert (statistics.inference_count, statistics.execution_count, statistics.success.count) == (4, 2, 4)
        assert house.workers.trimmed == house.workers.runs

    with_house(scenario)


def test_a_cancelled_member_does_not_disturb_the_others() -> None:
    async def scenario(house: House) -> None:
        blocker = house.ask(9)
        await house.settle()
        tasks = [house.ask(value) for value in (1, 2, 3)]
        await house.settle()
        tasks[1].cancel()
        await house.settle()
        house.workers.finish(house.workers.runs[0])
        await blocker
        await house.settle()
        assert [entry.request.inputs[0].data for entry in house.workers.runs[1].entries] == [b"\1", b"\3"]
        tasks[0].cancel()
        await house.settle()
        house.workers.finish(house.workers.runs[1])
        assert await tasks[2] == b"\3"

    with_house(scenario)


def test_a_result_that_cannot_be_rendered_fails_that_request_alone() -> None:
    def broken(outputs: tuple[OutputTensor, ...]) -> bytes:
        raise ValueError("secret")

    async def scenario(house: House) -> None:
        blocker = house.ask(0)
        await house.settle()
        bad = asyncio.create_task(house.engine.infer(house.request(1), broken))
        good = house.ask(2)
        await house.settle()
        house.workers.finish(house.workers.runs[0])
        await blocker
        await house.settle()
        house.workers.finish(house.workers.runs[1])
        with pytest.raises(InferenceFailed) as failure:
            await bad
        assert "secret" not in failure.value.message
        assert await good == b"\2"

    with_house(scenario)


def test_a_deadline_is_kept_while_the_worker_is_busy() -> None:
    async def scenario(house: House) -> None:
        busy = house.ask(0)
        await house.settle()
        late = house.ask(1, timeout_s=0.02)
        with pytest.raises(DeadlineExceeded):
            await asyncio.wait_for(late, 5)
        house.workers.finish(house.workers.runs[0])
        await busy
        await house.settle()
        assert len(house.workers.runs) == 1

    with_house(scenario)


def test_an_unknown_model_is_not_found() -> None:
    async def scenario(house: House) -> None:
        with pytest.raises(ModelNotFound):
            await house.engine.infer(house.request(1, key=ModelKey("other", 1)), content)

    with_house(scenario)


def test_draining_refuses_new_work_and_waits_for_the_old() -> None:
    async def scenario(house: House) -> None:
        accepted = house.ask(1)
        await house.settle()
        draining = asyncio.create_task(house.engine.drain(5.0))
        await house.settle()
        with pytest.raises(ServerDraining):
            await house.ask(2)
        assert not draining.done()
        house.workers.finish(house.workers.runs[0])
        assert await draining
        assert await accepted == b"\1"

    with_house(scenario)


def test_draining_ends_with_the_grace() -> None:
    async def scenario(house: House) -> None:
        stuck = house.ask(1)
        await house.settle()
        assert not await house.engine.drain(0.02)
        house.owner.cancel()
        with pytest.raises(ServerDraining):
            await stuck

    with_house(scenario)


def test_a_bug_in_the_core_ends_the_engine_and_nobody_waits_for_ever() -> None:
    async def scenario(house: House) -> None:
        waiting = house.ask(1)
        await house.settle()
        house.workers.runs.clear()
        house.engine.post("no event")  # type: ignore[arg-type]
        with pytest.raises(ServerDraining):
            await asyncio.wait_for(waiting, 5)
        with pytest.raises(KeyError):
            await asyncio.wait_for(house.owner, 5)

    with_house(scenario)


def test_a_failed_run_of_one_is_answered_and_counted() -> None:
    async def scenario(house: House) -> None:
        task = house.ask(1)
        await house.settle()
        house.engine.post(RunFailed(house.workers.runs[0].run_id, InferenceFailed("m", "id1")))
        with pytest.raises(InferenceFailed):
            await task
        assert house.engine.statistics.of(KEY).fail.count == 1

    with_house(scenario)
