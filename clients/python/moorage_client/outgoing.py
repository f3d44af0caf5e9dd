"""What a batch's client sends: items, read ahead, packed, and kept while they may have to be sent again."""

import asyncio
from collections import deque
from collections.abc import AsyncIterable, Iterable

from moorage_client.batch_messages import BatchItem, item_message
from moorage_client.errors import InvalidResponse
from moorage_protocol import inference as inference_pb
from moorage_protocol import moorage_v1 as pb

Items = AsyncIterable[BatchItem] | Iterable[BatchItem]

_PACK_ITEMS = 256
_PACK_BYTES = 256 * 1024
_AHEAD_ITEMS = 256
# So many items of one's own are read without giving way to others.
_READ_AT_ONCE = 64

_Request = inference_pb.ModelInferRequest


class Outgoing:
    """Of one batch, over any number of calls. Errors of `items`, and InvalidRequest for one that can't be sent, are
    kept in `failure`."""

    def __init__(self, items: Items, *, until_result: bool) -> None:
        """until_result: an item is kept until it has a result, not only until it is acknowledged."""
        self.failure: BaseException | None = None
        self._items = items
        self._until_result = until_result
        self._ahead: asyncio.Queue[_Request | None] = asyncio.Queue(_AHEAD_ITEMS)
        self._is_at_end = False
        self._kept: dict[str, _Request] = {}
        self._again: deque[_Request] = deque()
        self._sent_in_call: deque[str] = deque()
        self._sent = self._acknowledged = self._credit = 0
        self._may_send = asyncio.Event()

    async def read(self) -> None:
        """Read the items, as they are sent. To be run beside, once."""
        try:
            if isinstance(self._items, AsyncIterable):
                number = 0
                async for item in self._items:
                    await self._ahead.put(_numbered(item, number))
                    number += 1
            else:
                for number, item in enumerate(self._items):
                    await self._ahead.put(_numbered(item, number))
                    if number % _READ_AT_ONCE == 0:
                        await asyncio.sleep(0)
        except Exception as error:
            self.failure = error
        await self._ahead.put(None)

    def begin_call(self) -> None:
        """Another call: what is kept is sent again, once there is credit."""
        self._again = deque(self._kept.values())
        self._sent_in_call.clear()
        self._sent = self._acknowledged = self._credit = 0

    def allow(self, credit_items: int) -> None:
        """So many items of this call, in all, may be sent."""
        self._credit = max(self._credit, credit_items)
        self._may_send.set()

    def acknowledge(self, items: int) -> None:
        """So many of this call's items, in their order, are kept by the server."""
        while self._acknowledged < items:
            self._acknowledged += 1
            if not self._sent_in_call:
                raise InvalidResponse(f"the server acknowledged {items} items, {self._sent} were sent")
            item_id = self._sent_in_call.popleft()
            if not self._until_result:
                self._kept.pop(item_id, None)

    def has_result(self, item_id: str) -> None:
        """It need not be sent again."""
        self._kept.pop(item_id, None)

    async def next_message(self) -> pb.SubmitRequest | None:
        """As many items as may be sent now, one at least; None after the last."""
        while self._sent >= self._credit:
            self._may_send.clear()
            await self._may_send.wait()
        request = await self._next()
        if request is None:
            return None
        message = pb.SubmitRequest()
        items, size_bytes = message.items.items, 0
        while request is not None:
            items.append(request)
            size_bytes += request.ByteSize()
            self._sent += 1
            self._sent_in_call.append(request.id)
            if self._sent >= self._credit or len(items) >= _PACK_ITEMS or size_bytes >= _PACK_BYTES:
                break
            request = self._next_that_is_there()
        return message

    async def _next(self) -> _Request | None:
        if self._again:
            return self._again.popleft()
        if self._is_at_end:
            return None
        return self._taken(await self._ahead.get())

    def _next_that_is_there(self) -> _Request | None:
        if self._again:
            return self._again.popleft()
        if self._is_at_end or self._ahead.empty():
            return None
        return self._taken(self._ahead.get_nowait())

    def _taken(self, request: _Request | None) -> _Request | None:
        if request is None:
            self._is_at_end = True
        else:
            self._kept[request.id] = request
        return request


def _numbered(item: BatchItem, number: int) -> _Request:
    request = item_message(item)
    request.id = request.id or str(number)
    return request
