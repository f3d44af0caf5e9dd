"""An engine in memory that answers every request with its inputs, and models to serve with it."""

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from itertools import count
from pathlib import PurePath
from typing import Any, TypeVar

from moorage.domain.errors import LoadFailed, ModelNotFound, ModelNotReady, ServerDraining
from moorage.domain.model import ModelKey, ModelSpec, ModelState, SharePolicy
from moorage.domain.request import InferenceRequest
from moorage.domain.tensor import OutputTensor, TensorSpec
from moorage.engine.snapshot import BrokenModel, ModelSnapshot, ModelStatistics, ServerSnapshot
from moorage.rpc.ports import Render
from moorage.scheduling.explain import Explanation
from moorage.scheduling.foreseen import RunEstimate
from tests.unit.rpc.ledger import Ledger

T = TypeVar("T")


def echo_spec(name: str, *inputs: TensorSpec, max_batch_size: int = 0, version: int = 1) -> ModelSpec:
    """A model whose outputs are named and shaped as its inputs are."""
    return ModelSpec(
        name=name,
        version=version,
        runtime="python",
        inputs=inputs,
        outputs=inputs,
        path=PurePath("models", name, str(version)),
        max_batch_size=max_batch_size,
    )


def served(spec: ModelSpec, state: ModelState = ModelState.RESIDENT, *, ready: bool = True) -> ModelSnapshot:
    """A model as the snapshot shows it."""
    resident = state is ModelState.RESIDENT
    return ModelSnapshot(
        key=ModelKey(spec.name, spec.version),
        spec=spec,
        state=state,
        ready=ready,
        reason="" if resident else "not asked for yet",
        device="cpu" if resident else None,
        leased_bytes={"weights": 90 * 1024 * 1024} if resident else {},
        waiting_rows=0,
        statistics=ModelStatistics(),
    )


class EchoBackend:
    """Satisfies `moorage.rpc.ports.Backend`."""

    def __init__(self, *models: ModelSnapshot, broken: tuple[BrokenModel, ...] = ()) -> None:
        self.models = {model.key.name: model for model in models}
        self.broken = broken
        self.draining = False
        self.failure: BaseException | None = None
        self.gate: asyncio.Event | None = None
        self.requests: list[InferenceRequest] = []
        self.cancelled = asyncio.Event()
        self.entered = asyncio.Event()
        self.ledger = Ledger()
        self.estimates: tuple[RunEstimate, ...] = ()
        self.listeners: list[Callable[[], None]] = []
        self._ids = count(1)
        self.goes_on: dict[int, asyncio.Event] = {}
        self.emitted = 0
        self.asked: dict[int, asyncio.Future[Any]] = {}

    def resolve(self, name: str, version: str) -> tuple[ModelKey, ModelSpec]:
        model = self.models.get(name)
        if model is None or version not in ("", str(model.key.version)):
            raise ModelNotFound(name, version)
        if not model.ready:
            raise ModelNotReady(name, model.reason)
        return model.key, model.spec

    def next_request_id(self) -> int:
        return next(self._ids)

    async def infer(self, request: InferenceRequest, render: Render[T]) -> T:
        if self.draining:
            raise ServerDraining
        self.requests.append(request)
        self.entered.set()
        try:
            if self.gate is not None:
                await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        if self.failure is not None:
            raise self.failure
        return _render_from_borrowed_memory(request, render)

    def begin(
        self, request: InferenceRequest, render: Render[T], emit: Render[None] | None = None
    ) -> asyncio.Future[T]:
        answer = self.infer(request, render) if emit is None else self._infer_decoupled(request, render, emit)
        asked = self.asked[request.request_id] = asyncio.ensure_future(answer)
        return asked

    async def _infer_decoupled(self, request: InferenceRequest, render: Render[T], emit: Render[None]) -> T:
        """As many answers as the parameter `answers` says, and then an end: with one more where `last` says so."""
        goes_on = self.goes_on[request.request_id] = asyncio.Event()
        goes_on.set()
        for _ in range(int(request.parameters["answers"])):
            await asyncio.sleep(0)
            await goes_on.wait()
            _render_from_borrowed_memory(request, emit)
            self.emitted += 1
        if self.failure is not None:
            raise self.failure
        if request.parameters.get("last"):
            return _render_from_borrowed_memory(request, render)
        return render(())

    def pause(self, request_id: int) -> None:
        self.goes_on[request_id].clear()

    def resume(self, request_id: int) -> None:
        self.goes_on[request_id].set()

    def give_up(self, request_id: int) -> None:
        self.asked[request_id].cancel()

    def snapshot(self) -> ServerSnapshot:
        return ServerSnapshot(
            models=tuple(sorted(self.models.values(), key=lambda model: model.key)),
            broken=self.broken,
            devices=(self.ledger.snapshot(),),
            ready=not self.draining,
            draining=self.draining,
        )

    def now(self) -> float:
        return time.monotonic()

    def subscribe(self, on_change: Callable[[], None]) -> None:
        self.listeners.append(on_change)

    def unsubscribe(self, on_change: Callable[[], None]) -> None:
        if on_change in self.listeners:
            self.listeners.remove(on_change)

    def notify(self) -> None:
        for on_change in self.listeners:
            on_change()

    async def load(self, name: str) -> None:
        if any(broken.name == name for broken in self.broken):
            raise LoadFailed(name, "no model.py")
        self._change(name, ModelState.RESIDENT, ready=True)

    async def unload(self, name: str) -> None:
        self._change(name, ModelState.UNLOADED, ready=False)

    async def set_share(self, name: str, version: str, change: Callable[[SharePolicy], SharePolicy]) -> SharePolicy:
        key, _ = self.resolve(name, version)
        share = change(self.models[key.name].share)
        if share.reserved_bytes > self.ledger.capacity_bytes:
            raise self.ledger.exhausted(f"model '{name}'", share.reserved_bytes)
        self.models[name] = replace(self.models[name], share=share)
        return share

    def explain(self, name: str, version: str, rows: int, priority: int) -> Explanation:
        key, _ = self.resolve(name, version)
        others = [model for model in self.models.values() if model.key != key]
        return self.ledger.explain(self.models[name], others, rows, priority)

    def run_estimates(self, name: str, version: str) -> tuple[RunEstimate, ...]:
        self.resolve(name, version)
        return self.estimates

    def hold(self, device: str, size_bytes: int, priority: int, deadline_s: float) -> AbstractAsyncContextManager[None]:
        return self.ledger.hold(device, size_bytes, priority, deadline_s)

    def _change(self, name: str, state: ModelState, *, ready: bool) -> None:
        if name not in self.models:
            raise ModelNotFound(name)
        self.models[name] = replace(served(self.models[name].spec, state), ready=ready)
        self.notify()


def _render_from_borrowed_memory(request: InferenceRequest, render: Render[T]) -> T:
    """As the engine does: the views die with the call, and using one afterwards raises."""
    views = [memoryview(bytearray(tensor.data)) for tensor in request.inputs]
    try:
        return render(
            tuple(
                OutputTensor(tensor.name, tensor.datatype, tensor.shape, view)
                for tensor, view in zip(request.inputs, views, strict=True)
            )
        )
    finally:
        for view in views:
            view.release()
