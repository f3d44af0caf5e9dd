"""One worker process without a server: asked what the scheduler would ask, and waited for."""

import asyncio
import dataclasses
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from textwrap import dedent
from typing import Any, TypeVar

import numpy as np
import psutil

from moorage.devices import heap
from moorage.domain.model import ModelKey, ModelSpec
from moorage.domain.request import InferenceRequest
from moorage.domain.tensor import Datatype, InputTensor, TensorSpec
from moorage.scheduling.actions import Run
from moorage.scheduling.budget import Lease, LeaseKind
from moorage.scheduling.entries import Entry
from moorage.scheduling.events import Event, ModelLoaded, RunFinished, WorkerUp
from moorage.workers.pool import WorkerPool
from tests.support.scheduling import make_spec

Array = np.ndarray[Any, Any]
Awaited = TypeVar("Awaited", bound=Event)
NAME = "cpu"


class OneWorker:
    """reports: what went to the log, as (model, detail)."""

    def __init__(self) -> None:
        self.reports: list[tuple[str, str]] = []
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._numbers = itertools.count(1)
        self._outputs: dict[ModelKey, TensorSpec] = {}
        self.pool = WorkerPool(self._events.put_nowait, self._report, heap.environment())

    def _report(self, model: str, detail: str) -> str:
        self.reports.append((model, detail))
        return "id"

    async def next(self, kind: type[Awaited]) -> Awaited:
        """The next event, which must be of that kind."""
        event = await asyncio.wait_for(self._events.get(), 30)
        assert isinstance(event, kind), (event, self.reports)
        return event

    def rss_bytes(self) -> int:
        return psutil.Process(self.pool.pids[NAME]).memory_info().rss

    async def load(self, spec: ModelSpec) -> ModelLoaded:
        key = ModelKey(spec.name, 1)
        self._outputs[key] = spec.outputs[0]
        self.pool.load(NAME, key, spec)
        return await self.next(ModelLoaded)

    async def infer(self, key: ModelKey, name: str, datatype: Datatype, array: Array, data: bytes = b"") -> bytes:
        """The bytes of the first output, for one request with one input of all rows."""
        tensor = InputTensor(name, datatype, array.shape, data or array.tobytes())
        rows = array.shape[0]
        request = InferenceRequest(next(self._numbers), "", key, (tensor,), rows, len(tensor.data), 0.0, 1000.0)
        lease = Lease(NAME, str(key), LeaseKind.WORKSPACE, 0)
        self.pool.execute(Run(request.request_id, key, NAME, (Entry(request),), rows, lease, 0.0))
        finished = await self.next(RunFinished)
        return bytes(finished.result.outputs[0].data)

    async def answer(self, name: str, x: Array) -> Array:
        """What a model of spec_of answers to FP32 rows."""
        return np.frombuffer(await self.infer(ModelKey(name, 1), "x", Datatype.FP32, x), np.float32)


@asynccontextmanager
async def one_worker() -> AsyncIterator[OneWorker]:
    worker = OneWorker()
    worker.pool.start(NAME, "cpu")
    try:
        await worker.next(WorkerUp)
        yield worker
    finally:
        await worker.pool.close(5.0)


def with_worker(use: Callable[[OneWorker], Awaitable[None]]) -> None:
    """Run a test's coroutine with a worker."""

    async def run() -> None:
        async with one_worker() as worker:
            await use(worker)

    asyncio.run(run())


def spec_of(path: Path, name: str, runtime: str, width: int = 4) -> ModelSpec:
    """A model with FP32 input x and output y of [rows, width]."""
    tensors = [TensorSpec(item, Datatype.FP32, (width,)) for item in ("x", "y")]
    spec = make_spec(name, max_batch_size=8)
    return dataclasses.replace(spec, runtime=runtime, path=path, inputs=tuple(tensors[:1]), outputs=tuple(tensors[1:]))


def python_spec(folder: Path, name: str, code: str, width: int = 4) -> ModelSpec:
    """A model of spec_of whose model.py is written into a folder of its name."""
    path = folder / name
    path.mkdir()
    (path / "model.py").write_text(dedent(code))
    return spec_of(path, name, "python", width)
