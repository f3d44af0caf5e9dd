"""Running a server as a process: from its start to a signal, a drain and an exit code."""

import asyncio
import gc
import logging
import signal
from collections.abc import Callable, Coroutine
from typing import Any

from moorage.app.serving import Started, serving
from moorage.batches.database import StoreRefused
from moorage.config import Settings
from moorage.devices import heap
from moorage.repository.errors import RepositoryError
from moorage.repository.footprints import FootprintsRefused
from moorage.telemetry.logs import configure_logs

try:
    import uvloop
except ImportError:  # a faster event loop, where it is installed
    uvloop = None  # type: ignore[assignment]

log = logging.getLogger(__name__)


def run(settings: Settings, on_started: Callable[[Started], None]) -> int:
    """Serve until SIGTERM or SIGINT; the exit code: 0 after a drain, 1 where the server gave up or was forced.

    Raises OSError where an address can't be bound or the repository can't be read.
    """
    configure_logs()
    heap.keep_freed_memory()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop if uvloop else None) as runner:
        return runner.run(_serve(settings, on_started))


async def _serve(settings: Settings, on_started: Callable[[Started], None]) -> int:
    signals = _Signals()
    try:
        async with serving(settings) as server:
            _spare_what_stays()
            on_started(server.started)
            await signals.first_or(server.owner)
            if server.owner.done():
                log.critical("the engine has failed", exc_info=server.owner.exception())
                return 1
            log.info("draining: finishing what was accepted, for at most %g s", settings.server.grace_s)
            finished = await signals.unless_second(server.drain(settings.server.grace_s))
            if not finished:
                log.warning("not everything that was accepted could be finished")
                server.hurry()
            return 0 if finished else 1
    except (RepositoryError, FootprintsRefused, StoreRefused) as error:
        raise OSError(str(error)) from error


def _spare_what_stays() -> None:
    """Have the garbage collector look no more at what was made up to now, most of it imported: to go through that took
    30 to 45 ms, every few hundred requests, in which nobody was served."""
    gc.collect()
    gc.freeze()


class _Signals:
    """The first SIGTERM or SIGINT asks for a drain; the second no longer waits for it."""

    def __init__(self) -> None:
        self._first = asyncio.Event()
        self._second = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._received)

    def _received(self) -> None:
        (self._second if self._first.is_set() else self._first).set()

    async def first_or(self, owner: asyncio.Task[None]) -> None:
        """Wait for a signal, or for the engine to end."""
        waiting = asyncio.ensure_future(self._first.wait())
        waits: set[asyncio.Future[Any]] = {waiting, owner}
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()

    async def unless_second(self, drain: Coroutine[Any, Any, bool]) -> bool:
        """The drain's result; False as soon as a second signal comes."""
        draining = asyncio.ensure_future(drain)
        forced = asyncio.ensure_future(self._second.wait())
        waits: set[asyncio.Future[Any]] = {draining, forced}
        done, pending = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        return draining in done and bool(draining.result())
