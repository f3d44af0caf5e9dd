"""What this room asks of the engine below it, and of the edge above it, which knows what payloads mean."""

import asyncio
from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeVar

from moorage.batches.header import Header
from moorage.domain.model import ModelKey, ModelSpec
from moorage.domain.request import InferenceRequest
from moorage.domain.tensor import OutputTensor

T = TypeVar("T")

Render = Callable[[tuple[OutputTensor, ...]], T]


class Engine(Protocol):
    """See engine.Engine, and engine.Backend.resolve."""

    def now(self) -> float: ...

    def resolve(self, name: str, version: str) -> tuple[ModelKey, ModelSpec]: ...

    def begin(
        self, request: InferenceRequest, render: Render[T], emit: Render[None] | None = None
    ) -> "asyncio.Future[T]": ...

    def give_up(self, request_id: int) -> None: ...


class Prepared(NamedTuple):
    """An item that the engine can take. render: an answer's part of the outcome; those of all its answers, joined, are
    the outcome. decoupled: whether there may be any number of them."""

    request: InferenceRequest
    render: Render[bytes]
    decoupled: bool


class Failure(NamedTuple):
    """What an error is outside. code: the name of its status. content: the status, serialized."""

    code: str
    content: bytes


class Edge(Protocol):
    """Reads payloads, and writes outcomes."""

    async def prepare(self, payload: bytes, item_id: str, header: Header, remaining_s: float) -> Prepared:
        """Raises any MoorageError: the item is at fault, or its model."""
        ...

    def failure(self, error: BaseException) -> Failure:
        """How an error is told; one that is not ours, as a bug."""
        ...
