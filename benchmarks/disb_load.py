"""The callers of one DISB workload: real-time tasks that come at moments, best-effort tasks in closed loops.

Reads a Plan as JSON from stdin and prints Counted as JSON: of each task, in the plan's order, the latencies of what was
sent and answered in the time measured. Requests are serialised before the clock starts and answers stay bytes.
"""

import argparse
import asyncio
import gc
import json
import random
import sys
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Literal, TypedDict

import grpc
import numpy as np

from moorage_protocol import inference as pb
from moorage_protocol.services import INFERENCE_METHODS

Arrivals = Literal["closed", "periodic", "poisson"]
Call = grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]

TIMEOUT_S = 60.0
SETTLE_S = 0.3  # not measured, at the start


class Task(TypedDict):
    """priority: 0 sends none. per_s: requests, unless it is a closed loop."""

    model: str
    priority: int
    arrivals: Arrivals
    per_s: float


class Plan(TypedDict):
    """seed: of the moments. Two plans that differ in priorities alone have the same ones."""

    tasks: list[Task]
    seconds: float
    seed: int


class Spent(TypedDict):
    """Milliseconds of one request, on average, by the server's own statistics. Of a stepped model, 0."""

    waited_ms: float
    computed_ms: float


class Counted(TypedDict):
    """Of each task: latencies_ms of what was sent and answered in the time measured; spent, in all the time."""

    latencies_ms: list[list[float]]
    spent: list[Spent]


def request_for(model: str, priority: int) -> bytes:
    """A serialised request with one row, the same one for every model of a network."""
    generator = np.random.default_rng(7)
    image = not model.startswith("attention")
    row = generator.random((1, 3, 128, 128), np.float32) if image else generator.integers(1000, size=(1, 64))
    request = pb.ModelInferRequest(model_name=model, id="1", raw_input_contents=[row.tobytes()])
    request.inputs.add(name="INPUT0", datatype="FP32" if image else "INT64", shape=row.shape)
    if priority:
        request.parameters["priority"].int64_param = priority
    return request.SerializeToString()


class Caller:
    """One task. latencies_ms: of what was sent and answered between begin_s and end_s, on perf_counter's clock."""

    def __init__(self, task: Task, call: Call, begin_s: float, end_s: float) -> None:
        self.latencies_ms: list[float] = []
        self._task = task
        self._call = call
        self._body = request_for(task["model"], task["priority"])
        self._begin_s, self._end_s = begin_s, end_s

    async def run(self, generator: random.Random) -> None:
        """Send until the end. Raises AioRpcError: no request of a benchmark may fail."""
        if self._task["arrivals"] == "closed":
            while time.perf_counter() < self._end_s:
                await self._ask()
            return
        async with asyncio.TaskGroup() as group:
            for moment_s in self._moments(generator):
                await asyncio.sleep(moment_s - time.perf_counter())
                group.create_task(self._ask())

    def _moments(self, generator: random.Random) -> Iterator[float]:
        """Periodic ones begin anywhere in the first period, so that tasks do not come in step."""
        per_s = self._task["per_s"]
        moment_s = self._begin_s - SETTLE_S + generator.random() / per_s
        while moment_s < self._end_s:
            yield moment_s
            moment_s += generator.expovariate(per_s) if self._task["arrivals"] == "poisson" else 1 / per_s

    async def _ask(self) -> None:
        sent_s = time.perf_counter()
        await self._call(self._body, timeout=TIMEOUT_S)
        answered_s = time.perf_counter()
        if sent_s >= self._begin_s and answered_s <= self._end_s:
            self.latencies_ms.append((answered_s - sent_s) * 1e3)


async def _warm_up(call: Call, models: set[str]) -> None:
    """See every model answer, and alike where it is the same network. Waits for those that still load."""
    answers: dict[str, np.ndarray[tuple[int], np.dtype[np.float32]]] = {}
    for model in sorted(models):
        response = pb.ModelInferResponse.FromString(await call(request_for(model, 0), timeout=TIMEOUT_S))
        answer = np.frombuffer(response.raw_output_contents[0], np.float32)
        network = model.removesuffix("_background")
        assert np.allclose(answer, answers.setdefault(network, answer), atol=1e-4), f"{model} answers something else"


async def _statistics(channel: grpc.aio.Channel, tasks: list[Task]) -> list[pb.InferStatistics]:
    """Of each task's model."""
    ask: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(INFERENCE_METHODS["ModelStatistics"].path)
    body = pb.ModelStatisticsRequest().SerializeToString()
    response = pb.ModelStatisticsResponse.FromString(await ask(body, timeout=TIMEOUT_S))
    found = {model.name: model.inference_stats for model in response.model_stats}
    return [found[task["model"]] for task in tasks]


def _spent(before: pb.InferStatistics, after: pb.InferStatistics) -> Spent:
    def mean_ms(*names: str) -> float:
        ns: int = sum(getattr(after, name).ns - getattr(before, name).ns for name in names)
        count: int = after.queue.count - before.queue.count
        return ns / max(1, count) / 1e6

    return Spent(waited_ms=mean_ms("queue"), computed_ms=mean_ms("compute_input", "compute_infer", "compute_output"))


async def run(target: str, plan: Plan) -> Counted:
    """Carry a plan out."""
    async with AsyncExitStack() as stack:
        path = INFERENCE_METHODS["ModelInfer"].path
        options = [("grpc.use_local_subchannel_pool", 1)]
        channels = [
            await stack.enter_async_context(grpc.aio.insecure_channel(target, options=options)) for _ in plan["tasks"]
        ]
        calls: list[Call] = [channel.unary_unary(path) for channel in channels]
        await _warm_up(calls[0], {task["model"] for task in plan["tasks"]})
        before = await _statistics(channels[0], plan["tasks"])
        begin_s = time.perf_counter() + SETTLE_S
        end_s = begin_s + plan["seconds"]
        callers = [Caller(task, call, begin_s, end_s) for task, call in zip(plan["tasks"], calls, strict=True)]
        gc.disable()
        async with asyncio.TaskGroup() as group:
            for number, caller in enumerate(callers):
                group.create_task(caller.run(random.Random(1000 * plan["seed"] + number)))
        after = await _statistics(channels[0], plan["tasks"])
        spent = [_spent(*pair) for pair in zip(before, after, strict=True)]
        return Counted(latencies_ms=[caller.latencies_ms for caller in callers], spent=spent)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", required=True)
    options = parser.parse_args()
    plan: Plan = json.load(sys.stdin)
    print(json.dumps(asyncio.run(run(options.target, plan))))


if __name__ == "__main__":
    main()
