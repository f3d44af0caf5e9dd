"""How operations reach a server, whatever the transport."""

import random
from typing import Protocol, TypeVar

from google.protobuf.message import Message

from moorage_client.retries import with_retries

Answer = TypeVar("Answer", bound=Message)
Read_co = TypeVar("Read_co", bound=Message, covariant=True)


class Stream(Protocol[Read_co]):
    """The answers of one call that has many."""

    async def read(self) -> Read_co | None:
        """The next one; None after the last. Raises MoorageClientError."""

    def cancel(self) -> None:
        """End the call, on the server too. Without effect on one that has ended."""


class Transport(Protocol):
    """One connection to a server. The sync one blocks in these methods and never suspends."""

    async def call(self, method: str, request: Message, answer: type[Answer], timeout_s: float | None) -> Answer:
        """The answer, which is of the type `answer`, of one unary call. Raises MoorageClientError."""

    def stream(self, method: str, request: Message, answer: type[Answer]) -> Stream[Answer]:
        """Begin a call with many answers and no deadline. Raises Cancelled where the client is closed."""

    async def connect(self, timeout_s: float) -> bool:
        """Wait until the connection stands; false if it does not in time."""

    async def sleep(self, delay_s: float) -> None:
        """Wait that long."""


class Calls:
    """Calls over one transport, tried again where that can help."""

    def __init__(self, transport: Transport, *, attempts: int, timeout_s: float | None) -> None:
        if attempts < 1:
            raise ValueError(f"attempts: expected at least 1, got {attempts}")
        self._transport = transport
        self._attempts = attempts
        self._timeout_s = timeout_s
        self._rng = random.Random()

    async def _query(self, method: str, request: Message, answer: type[Answer]) -> Answer:
        return await self._call(method, request, answer, self._timeout_s)

    async def _call(self, method: str, request: Message, answer: type[Answer], timeout_s: float | None) -> Answer:
        return await with_retries(
            lambda left_s: self._transport.call(method, request, answer, left_s),
            sleep=self._transport.sleep,
            rng=self._rng,
            attempts=self._attempts,
            timeout_s=timeout_s,
        )
