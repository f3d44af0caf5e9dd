"""A batch of the server's, as an iterator of what becomes of its items."""

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, Callable
from typing import Protocol

from moorage_client.batch_messages import (
    BatchInfo,
    BatchProgress,
    BatchResult,
    info_of,
    progress_of,
    result_of,
)
from moorage_client.errors import InvalidResponse, MoorageClientError, Unavailable
from moorage_client.outgoing import Outgoing
from moorage_client.retries import may_try_again, retry_delay_s
from moorage_protocol import moorage_v1 as pb

# Calls in a row that failed without telling anything new.
_MOST_FAILURES = 20

Message = pb.SubmitResponse | pb.AttachResponse


class BatchCall(Protocol):
    """One call that tells of a batch, and may send items."""

    async def write(self, request: pb.SubmitRequest) -> None:
        """Raises MoorageClientError."""

    async def done_writing(self) -> None:
        """There is nothing more to be written."""

    async def read(self) -> Message | None:
        """The next one; None after the last. Raises MoorageClientError."""

    def cancel(self) -> None:
        """End the call. Without effect on one that has ended."""


class Batch:
    """What becomes of a batch's items, in the order in which the server tells it. Iterate over it, once.

    Lost connections and restarts of the server are survived: it connects again, goes on after what it has seen, and
    sends again what the server may have lost. So every item's result comes exactly once. It gives up, and raises the
    last error, after 20 tries without anything new.

    Whoever stops iterating leaves the batch to the server, which goes on with what it has. Submit it again to go on
    with items; attach to it to hear of its results; or cancel it.

    info: as it was told last; once the iteration has ended, its final state. progress: the latest; None before any.
    """

    def __init__(
        self, batch_id: str, begin: Callable[[int], BatchCall], outgoing: Outgoing | None, after_sequence: int = 0
    ) -> None:
        """begin: a call from a sequence number on. outgoing: its items; None where it has all."""
        self.batch_id = batch_id
        self.info: BatchInfo | None = None
        self.progress: BatchProgress | None = None
        self.sequence = after_sequence
        self._begin = begin
        self._outgoing = outgoing
        self._has_ended = False
        self._random = random.Random()

    async def __aiter__(self) -> AsyncGenerator[BatchResult]:
        """Raises MoorageClientError where it can't go on, and what the items raise."""
        async with contextlib.aclosing(self.events()) as events:
            async for event in events:
                if isinstance(event, BatchResult):
                    yield event

    async def events(self) -> AsyncGenerator[BatchResult | BatchProgress | BatchInfo]:
        """Likewise, and between results progress, and the batch's state when a call begins and at the end."""
        reading = asyncio.create_task(self._outgoing.read()) if self._outgoing is not None else None
        failures = 0
        try:
            while not self._has_ended:
                try:
                    async with contextlib.aclosing(self._one_call()) as events:
                        async for event in events:
                            failures = 0
                            yield event
                except MoorageClientError as error:
                    self._check_items()
                    failures += 1
                    if failures > _MOST_FAILURES or not may_try_again(error):
                        raise
                    await asyncio.sleep(retry_delay_s(failures, error.retry_after_s, self._random))
        finally:
            if reading is not None:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)

    async def _one_call(self) -> AsyncGenerator[BatchResult | BatchProgress | BatchInfo]:
        call = self._begin(self.sequence)
        sending: asyncio.Task[None] | None = None
        if self._outgoing is not None:
            self._outgoing.begin_call()
            sending = asyncio.create_task(self._send(self._outgoing, call))
        try:
            while not self._has_ended:
                message = await call.read()
                self._check_items()
                if message is None:
                    raise Unavailable("the server ended the call before the batch")
                for event in message.events:
                    told = self._told(event)
                    if told is not None:
                        yield told
        finally:
            call.cancel()
            if sending is not None:
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)

    async def _send(self, outgoing: Outgoing, call: BatchCall) -> None:
        """Send items until there are no more. Errors of the call are its reader's to raise."""
        with contextlib.suppress(MoorageClientError):
            while (message := await outgoing.next_message()) is not None:
                await call.write(message)
            if outgoing.failure is None:
                await call.done_writing()
            else:
                call.cancel()

    def _check_items(self) -> None:
        if self._outgoing is not None and self._outgoing.failure is not None:
            raise self._outgoing.failure

    def _told(self, event: pb.BatchEvent) -> BatchResult | BatchProgress | BatchInfo | None:
        """What an event says, where that is for whoever iterates."""
        match event.WhichOneof("kind"):
            case "opened":
                return self._opened(event.opened)
            case "acknowledged":
                self._allow(event.acknowledged.credit_items, event.acknowledged.items)
            case "result" | "error":
                return self._result(event)
            case "progress":
                self.progress = progress_of(event.progress)
                return self.progress
            case "summary":
                self._has_ended = True
                self.info = info_of(event.summary.batch)
                return self.info
        return None

    def _opened(self, opened: pb.BatchOpened) -> BatchInfo:
        info = info_of(opened.batch)
        is_another = self.info is not None and info.created_at_s != self.info.created_at_s
        if is_another or info.sequence < self.sequence:
            if info.options.durable:
                raise InvalidResponse(f"the server has lost batch '{self.batch_id}', and began another of that id")
            self.sequence = 0  # one that was not durable ended with its server: its items are sent again
        self.info = info
        self._allow(opened.credit_items, 0)
        return info

    def _allow(self, credit_items: int, acknowledged: int) -> None:
        if self._outgoing is not None:
            self._outgoing.acknowledge(acknowledged)
            self._outgoing.allow(credit_items)

    def _result(self, event: pb.BatchEvent) -> BatchResult | None:
        result = result_of(event)
        if result.sequence <= self.sequence:
            return None
        self.sequence = result.sequence
        if self._outgoing is not None:
            self._outgoing.has_result(result.item_id)
        return result
