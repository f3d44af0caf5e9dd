"""What this room asks of the engine. The engine satisfies it; tests bring an in-memory one."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeVar

from moorage.domain.model import ModelKey, ModelSpec, SharePolicy
from moorage.domain.request import InferenceRequest
from moorage.domain.tensor import OutputTensor
from moorage.engine.snapshot import ServerSnapshot
from moorage.scheduling.explain import Explanation
from moorage.scheduling.foreseen import RunEstimate

T = TypeVar("T")

Render = Callable[[tuple[OutputTensor, ...]], T]
"""Turns outputs into what is sent. Called synchronously: the views it gets are valid only during the call."""


class Backend(Protocol):
    """The engine as the edge sees it. All of it is called on the event loop."""

    def resolve(self, name: str, version: str) -> tuple[ModelKey, ModelSpec]:
        """The model that serves this name and version; the latest where the version is empty.

        Raises ModelNotFound and ModelNotReady.
        """
        ...

    def next_request_id(self) -> int:
        """A number that no other request of this server has."""
        ...

    async def infer(self, request: InferenceRequest, render: Render[T]) -> T:
        """Queue the request, run it, and answer what `render` makes of its outputs.

        Raises any MoorageError, and whatever `render` raises. Cancellation: the request is cancelled.
        """
        ...

    def begin(
        self, request: InferenceRequest, render: Render[T], emit: Render[None] | None = None
    ) -> "asyncio.Future[T]":
        """Queue the request; what `infer` would answer or raise will be in the future. Who no longer waits for it says
        so with give_up. emit: gets each answer of a decoupled model before the last, which may be empty."""
        ...

    def pause(self, request_id: int) -> None:
        """Nobody takes what is emitted: the request takes no further step. One more may be under way."""
        ...

    def resume(self, request_id: int) -> None:
        """Undo pause. Without effect on a request that is answered, or not paused."""
        ...

    def give_up(self, request_id: int) -> None:
        """Nobody waits for this request any more. Without effect on one that is answered."""
        ...

    def snapshot(self) -> ServerSnapshot:
        """The state of the server now."""
        ...

    def now(self) -> float:
        """Monotonic seconds, the clock of every arrived_s and deadline_s."""
        ...

    def subscribe(self, on_change: Callable[[], None]) -> None:
        """Call `on_change` whenever a model's state or the server's readiness has changed."""
        ...

    def unsubscribe(self, on_change: Callable[[], None]) -> None:
        """No longer call it. Without effect where it is not called."""
        ...

    async def load(self, name: str) -> None:
        """Scan the model's folder again, and load or swap it. Raises any MoorageError."""
        ...

    async def unload(self, name: str) -> None:
        """Take no more requests for the model; return once its memory is released. Raises any MoorageError."""
        ...

    async def set_share(self, name: str, version: str, change: Callable[[SharePolicy], SharePolicy]) -> SharePolicy:
        """Give a version of a model the standing that `change` makes of the one it has; answers the new one.

        The edge always names the version: it fills in the one that a request without a version would reach. Raises
        ModelNotFound, and MemoryExhausted for a reservation that is not free. Cancellation: the change is made or not.
        """
        ...

    def run_estimates(self, name: str, version: str) -> tuple[RunEstimate, ...]:
        """What is expected of a model's runs, by their size. Raises ModelNotFound and ModelNotReady."""
        ...

    def explain(self, name: str, version: str, rows: int, priority: int) -> Explanation:
        """What would happen if the model were asked for so many rows now. priority: 0 for the model's own.

        Raises ModelNotFound, ModelNotReady and InvalidRequest.
        """
        ...

    def hold(self, device: str, size_bytes: int, priority: int, deadline_s: float) -> AbstractAsyncContextManager[None]:
        """Bytes of a device's budget, for as long as one is inside; entering waits for them.

        Entering raises MemoryExhausted, ModelTooLarge, DeadlineExceeded, InvalidRequest (no such device) and
        ServerDraining. Cancellation: while it waits, nothing is taken; inside, they are given back.
        """
        ...
