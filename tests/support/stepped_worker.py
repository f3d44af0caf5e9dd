"""A worker and its stepped models, asked step by step as the scheduler asks, by tests that are no coroutines."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

import numpy as np
import psutil
from numpy.typing import NDArray

from moorage.devices import heap
from moorage.domain.errors import MoorageError
from moorage.domain.model import ModelKey, ModelSpec, SimulatedCosts
from moorage.domain.request import InferenceRequest, ParameterValue, StepResult
from moorage.domain.tensor import Datatype, InputTensor, TensorSpec
from moorage.scheduling.actions import Run, StepPlan
from moorage.scheduling.budget import Lease, LeaseKind
from moorage.scheduling.entries import Entry
from moorage.scheduling.events import (
    Event,
    ModelLoaded,
    ModelLoadFailed,
    ModelUnloaded,
    RunFailed,
    StatesDropped,
    StatesSuspended,
    StepFinished,
    WorkerUp,
)
from moorage.workers.pool import WorkerPool

WORKER = "cpu"
LIMIT_S = 30.0
NO_COSTS = SimulatedCosts()
Values = NDArray[np.float32]


@dataclass(frozen=True)
class Stepped:
    """What a step came to. answers: copies of `y`, of those that are done. error: of the step as a whole."""

    results: Mapping[int, StepResult] = field(default_factory=dict)
    answers: dict[int, Values] = field(default_factory=dict)
    error: MoorageError | None = None


class SteppedWorker:
    """One worker process. Use it as a context; every method waits for the worker's answer."""

    def __init__(self) -> None:
        self.details: list[str] = []
        self._runner = asyncio.Runner()
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._last_id = 0

    def __enter__(self) -> "SteppedWorker":
        self._runner.run(self._open())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._runner.run(self._pool.close(5.0))
        self._runner.close()

    async def _open(self) -> None:
        self._pool = WorkerPool(self._events.put_nowait, self._report, heap.environment())
        self._pool.start(WORKER, "cpu")
        assert isinstance(await self._next(), WorkerUp)

    def _report(self, model: str, detail: str) -> str:
        self.details.append(detail)
        return f"error-{len(self.details)}"

    async def _next(self) -> Event:
        return await asyncio.wait_for(self._events.get(), LIMIT_S)

    @property
    def process(self) -> psutil.Process:
        return psutil.Process(self._pool.pids[WORKER])

    def load_python(self, folder: Path, name: str, code: str) -> ModelKey:
        """A model whose model.py is that code."""
        path = folder / name / "1"
        path.mkdir(parents=True)
        (path / "model.py").write_text(code)
        loaded = self.load(spec_of(name, "python", path))
        assert isinstance(loaded, ModelLoaded), loaded
        return loaded.key

    def load(self, spec: ModelSpec) -> Event:
        async def call() -> Event:
            self._pool.load(WORKER, ModelKey(spec.name, spec.version), spec)
            return await self._next()

        return self._runner.run(call())

    def unload(self, key: ModelKey) -> None:
        async def call() -> Event:
            self._pool.unload(WORKER, key)
            return await self._next()

        assert isinstance(self._runner.run(call()), ModelUnloaded)

    def request(self, key: ModelKey, x: Values, **parameters: ParameterValue) -> InferenceRequest:
        """One that has not been told to the worker yet."""
        self._last_id += 1
        tensor = InputTensor("x", Datatype.FP32, x.shape, x.tobytes())
        return InferenceRequest(
            request_id=self._last_id,
            client_id=f"client-{self._last_id}",
            model=key,
            inputs=(tensor,),
            rows=len(x),
            size_bytes=x.nbytes,
            arrived_s=0.0,
            deadline_s=1000.0,
            parameters=parameters,
        )

    def step(
        self,
        *members: InferenceRequest,
        starting: Sequence[InferenceRequest] = (),
        resuming: Sequence[InferenceRequest] = (),
    ) -> Stepped:
        """One step of all the members, those that start or resume being among them."""

        async def call() -> Stepped:
            self._pool.execute(run)
            event = await self._next()
            if isinstance(event, RunFailed):
                return Stepped(error=event.error)
            assert isinstance(event, StepFinished), event
            assert event.run_id == run.run_id
            # While the lane still holds what the results are views of.
            stepped = Stepped({result.request_id: result for result in event.results}, _answers(event))
            self._pool.trim(run)
            return stepped

        self._last_id += 1
        plan = StepPlan(tuple(map(Entry, starting)), tuple(map(Entry, resuming)))
        key = members[0].model
        lease = Lease(WORKER, str(key), LeaseKind.WORKSPACE, 0)
        rows = sum(member.rows for member in members)
        run = Run(self._last_id, key, WORKER, tuple(map(Entry, members)), rows, lease, 0.0, plan)
        return self._runner.run(call())

    def finish(self, *members: InferenceRequest, starting: Sequence[InferenceRequest] = ()) -> dict[int, Values]:
        """Step until all of them are done; their answers."""
        answers: dict[int, Values] = {}
        while members:
            stepped = self.step(*members, starting=starting)
            assert stepped.error is None, self.details
            answers |= stepped.answers
            members = tuple(member for member in members if not stepped.results[member.request_id].done)
            starting = ()
        return answers

    def alone(self, request: InferenceRequest) -> Values:
        """Its answer, undisturbed, from its start on."""
        return self.finish(request, starting=[request])[request.request_id]

    def suspend(self, *members: InferenceRequest) -> tuple[set[int], set[int]]:
        """Which were suspended, and which dropped instead."""
        ids = tuple(member.request_id for member in members)
        suspended: set[int] = set()
        dropped: set[int] = set()

        async def call() -> None:
            self._pool.suspend(WORKER, members[0].model, ids)
            while len(suspended) + len(dropped) < len(ids):
                event = await self._next()
                assert isinstance(event, StatesSuspended | StatesDropped), event
                (suspended if isinstance(event, StatesSuspended) else dropped).update(event.request_ids)

        self._runner.run(call())
        return suspended, dropped

    def drop(self, *members: InferenceRequest) -> None:
        async def call() -> Event:
            self._pool.drop(WORKER, members[0].model, ids)
            return await self._next()

        ids = tuple(member.request_id for member in members)
        assert self._runner.run(call()) == StatesDropped(members[0].model, ids)


def spec_of(name: str, runtime: str, path: Path, simulated: SimulatedCosts = NO_COSTS) -> ModelSpec:
    """FP32[rows, any] in and out."""
    return ModelSpec(
        name=name,
        version=1,
        runtime=runtime,
        inputs=(TensorSpec("x", "FP32", (-1,)),),
        outputs=(TensorSpec("y", "FP32", (-1,)),),
        path=path,
        max_batch_size=8,
        simulated=simulated,
    )


def values(rows: int, columns: int, seed: int = 0) -> Values:
    """Some numbers, the same for the same seed."""
    return np.random.default_rng(seed).standard_normal((rows, columns)).astype(np.float32)


def load_failure(event: Event) -> str:
    """Why a model could not be loaded."""
    assert isinstance(event, ModelLoadFailed), event
    return str(event.error)


def _answers(event: StepFinished) -> dict[int, Values]:
    answers = {}
    for result in event.results:
        for output in result.outputs:
            assert output.name == "y"
            assert output.splits == (len(output.data),)
            answers[result.request_id] = np.frombuffer(bytes(output.data), np.float32).reshape(output.shape)
    return answers
