"""A thread of its own for calls that may never come back."""

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")


class StillBusy(Exception):
    """An earlier call has not come back yet."""


class OwnThread:
    """Runs one call at a time, for the loop. A call that hangs costs this thread, and no exit of the process waits."""

    def __init__(self, name: str) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._under_way: asyncio.Future[object] | None = None
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)

    async def call(self, work: Callable[[], Result], limit_s: float) -> Result:
        """What `work` returns, or raises. Raises StillBusy at once, and TimeoutError after limit_s.

        Cancellation: the wait ends; the call goes on, and what it returns is dropped.
        """
        if self._under_way is not None and not self._under_way.done():
            raise StillBusy
        if not self._thread.ident:
            self._thread.start()
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[Result] = loop.create_future()
        # Of a call that nobody waits for any more, an error is dropped like a result.
        outcome.add_done_callback(lambda done: done.exception())
        self._under_way = outcome  # type: ignore[assignment]
        self._jobs.put(lambda: _perform(work, outcome, loop))
        await asyncio.wait([outcome], timeout=limit_s)
        if not outcome.done():
            raise TimeoutError
        return outcome.result()

    def close(self, last: Callable[[], object]) -> None:
        """Do `last` when the thread is free, and end it. Waits for neither."""
        if self._thread.ident:
            self._jobs.put(last)
            self._jobs.put(None)

    def _work(self) -> None:
        while job := self._jobs.get():
            job()


def _perform(work: Callable[[], Result], outcome: asyncio.Future[Result], loop: asyncio.AbstractEventLoop) -> None:
    try:
        result = work()
    except Exception as error:
        _tell(loop, outcome.set_exception, error)
    else:
        _tell(loop, outcome.set_result, result)


def _tell(loop: asyncio.AbstractEventLoop, settle: Callable[[Result], None], value: Result) -> None:
    with contextlib.suppress(RuntimeError):  # the loop has ended in the meantime
        loop.call_soon_threadsafe(settle, value)
