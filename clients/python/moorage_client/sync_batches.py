"""A batch for the blocking client: an event loop in a thread of its own does the work."""

import asyncio
import contextlib
import queue
import threading
from collections.abc import Awaitable, Callable, Iterator
from functools import partial

from moorage_client.batch_messages import BatchInfo, BatchProgress, BatchResult
from moorage_client.batches import Batch

_AHEAD = 256
_LOOK_AGAIN_S = 0.001

Event = BatchResult | BatchProgress | BatchInfo


class SyncBatch:
    """What becomes of a batch's items; see Batch. Its items are read in another thread."""

    def __init__(self, begin: Callable[[], tuple[Batch, Callable[[], Awaitable[None]]]]) -> None:
        """begin: makes the batch, in the running loop, and what closes its connection."""
        self._begin = begin
        self._events: queue.Queue[Event | BaseException | None] = queue.Queue(_AHEAD)
        self._stop = threading.Event()
        self._end: Callable[[], object] | None = None
        self.info: BatchInfo | None = None
        self.progress: BatchProgress | None = None

    def __iter__(self) -> Iterator[BatchResult]:
        """Raises MoorageClientError where it can't go on, and what the items raise."""
        for event in self.events():
            if isinstance(event, BatchResult):
                yield event

    def events(self) -> Iterator[Event]:
        """Likewise, and between results progress, and the batch's state when a call begins and at the end."""
        thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="moorage batch", daemon=True)
        thread.start()
        try:
            while (event := self._events.get()) is not None:
                if isinstance(event, BaseException):
                    raise event
                if isinstance(event, BatchInfo):
                    self.info = event
                elif isinstance(event, BatchProgress):
                    self.progress = event
                yield event
        finally:
            self._stop.set()
            if (end := self._end) is not None:
                with contextlib.suppress(RuntimeError):  # it has ended by itself
                    end()
            thread.join()

    async def _run(self) -> None:
        handing_on = asyncio.create_task(self._hand_on())
        self._end = partial(asyncio.get_running_loop().call_soon_threadsafe, handing_on.cancel)
        if self._stop.is_set():  # before there was anything to be ended
            handing_on.cancel()
        await asyncio.wait((handing_on,))
        await self._put(None)

    async def _hand_on(self) -> None:
        try:
            batch, close = self._begin()
            try:
                async with contextlib.aclosing(batch.events()) as events:
                    async for event in events:
                        if not await self._put(event):
                            return
            finally:
                await close()
        except Exception as error:
            await self._put(error)

    async def _put(self, event: Event | BaseException | None) -> bool:
        """Hand on; false where nobody takes it any more."""
        while not self._stop.is_set():
            try:
                self._events.put_nowait(event)
            except queue.Full:
                await asyncio.sleep(_LOOK_AGAIN_S)
            else:
                return True
        return False
