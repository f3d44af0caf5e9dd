"""What this room asks of the engine. The engine satisfies it; tests bring an in-memory one."""

from collections.abc import Callable
from typing import Protocol, TypeVar

from moorage.domain.model import ModelKey, ModelSpec
from moorage.domain.request import InferenceRequest
from moorage.domain.tensor import OutputTensor
from moorage.engine.snapshot import ServerSnapshot

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

    def snapshot(self) -> ServerSnapshot:
        """The state of the server now."""
        ...

    def now(self) -> float:
        """Monotonic seconds, the clock of every arrived_s and deadline_s."""
        ...

    def subscribe(self, on_change: Callable[[], None]) -> None:
        """Call `on_change` whenever a model's state or the server's readiness has changed."""
        ...

    async def load(self, name: str) -> None:
        """Scan the model's folder again, and load or swap it. Raises any MoorageError."""
        ...

    async def unload(self, name: str) -> None:
        """Take no more requests for the model; return once its memory is released. Raises any MoorageError."""
        ...
