"""The composition root: builds every room, starts them inside-out, and drains them outside-in."""

import asyncio
import contextlib
import logging
import signal
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from moorage import __version__
from moorage.config import Address, Settings
from moorage.devices import heap
from moorage.engine.backend import Backend
from moorage.engine.catalog import Catalog
from moorage.engine.control import Control
from moorage.engine.engine import Engine
from moorage.repository.disk import DiskRepository
from moorage.repository.errors import RepositoryError
from moorage.rpc.listener import Listener, ListenerSettings
from moorage.scheduling.scheduler import Scheduler
from moorage.scheduling.state import DeviceLimits, Limits
from moorage.telemetry.logs import configure_logs
from moorage.web.server import HttpServer
from moorage.workers.pool import WorkerPool

try:
    import uvloop
except ImportError:  # a faster event loop, where it is installed
    uvloop = None  # type: ignore[assignment]

log = logging.getLogger(__name__)


_HOUSEKEEPING_S = 60.0


@dataclass(slots=True)
class _Patience:
    """Seconds at the end, after the work is done: for answers on their way out, then for models to unload."""

    connections_s: float = 2.0
    workers_s: float = 5.0


@dataclass(frozen=True, slots=True)
class Started:
    """What a server that has just started serves, where, on which budget. Sizes in bytes."""

    grpc_address: str
    http_address: str | None
    repository: str
    devices: tuple[tuple[str, int], ...]
    models: tuple[str, ...]
    broken: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Server:
    """A running server. backend: what its edges see. pool: its worker processes."""

    started: Started
    backend: Backend
    engine: Engine
    pool: WorkerPool
    owner: asyncio.Task[None]
    patience: _Patience

    async def drain(self, grace_s: float) -> bool:
        """Take no new work, and wait for what was accepted; whether it was all done in time."""
        return await self.engine.drain(grace_s)

    def hurry(self) -> None:
        """End without waiting for anything more: calls are cut off, workers killed."""
        self.patience.connections_s = self.patience.workers_s = 0.0


@contextlib.asynccontextmanager
async def serving(settings: Settings) -> AsyncIterator[Server]:
    """Run a server inside the current loop. Leaving it ends everything it started; drain first to finish work.

    Raises OSError where an address can't be bound, RepositoryError where there is no repository.
    """
    scheduler = Scheduler(_device_limits(settings), _limits(settings))
    engine = Engine(scheduler, check_integrity=settings.server.check_integrity)
    pool = WorkerPool(engine.post, engine.report, heap.environment())
    engine.attach(pool)
    catalog = Catalog()
    control = Control(engine, catalog, DiskRepository(settings.repository.path))
    backend = Backend(engine, catalog, control)
    patience = _Patience()
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(lambda: pool.close(patience.workers_s))
        owner = asyncio.create_task(engine.run(), name="engine")
        stack.push_async_callback(_cancel, owner)
        stack.callback(control.close)
        await control.register_all()
        listener = Listener(backend, _listener_settings(settings))
        grpc_address = await listener.start()
        stack.push_async_callback(lambda: listener.stop(patience.connections_s))
        http_address = None
        if settings.server.http is not None:
            http = HttpServer(*settings.server.http, backend.snapshot)
            http_address = await _start_http(http, settings.server.http)
            stack.push_async_callback(lambda: http.stop(patience.connections_s))
        # Only now, as an address that is taken must not cost the loading of models first.
        control.begin()
        keeping = asyncio.create_task(_keep_house(engine), name="housekeeping")
        stack.push_async_callback(_cancel, keeping)
        started = Started(
            grpc_address=grpc_address,
            http_address=http_address,
            repository=str(settings.repository.path),
            devices=tuple((name, device.budget_bytes) for name, device in settings.devices.items()),
            models=tuple(str(serving.key) for serving in catalog.all()),
            broken=tuple(sorted(catalog.broken.items())),
        )
        yield Server(started, backend, engine, pool, owner, patience)


async def _start_http(http: HttpServer, address: Address) -> str:
    try:
        return await http.start()
    except OSError as error:
        raise OSError(f"server.http: cannot listen on {address}: {error.strerror or error}") from error


async def _keep_house(engine: Engine) -> None:
    """Now and then, when nothing is under way: see that the ledger is right, and give free memory back."""
    while True:
        await asyncio.sleep(_HOUSEKEEPING_S)
        if engine.is_idle:
            try:
                engine.scheduler.check_integrity()
            except AssertionError:
                log.critical("the ledger has drifted: please report this", exc_info=True)
            await asyncio.to_thread(heap.give_back)


def _device_limits(settings: Settings) -> dict[str, DeviceLimits]:
    return {
        name: DeviceLimits(device.budget_bytes - device.reserve_bytes, device.context_bytes)
        for name, device in settings.devices.items()
    }


def _limits(settings: Settings) -> Limits:
    hang_timeout_s = settings.server.hang_timeout_s
    return Limits(
        max_input_bytes=settings.server.max_message_bytes, max_unload_s=hang_timeout_s, hang_timeout_s=hang_timeout_s
    )


def _listener_settings(settings: Settings) -> ListenerSettings:
    return ListenerSettings(
        address=str(settings.server.grpc),
        server_version=__version__,
        max_receive_bytes=settings.server.max_message_bytes,
        max_concurrent_calls=settings.server.max_concurrent_rpcs,
    )


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


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
    except RepositoryError as error:
        raise OSError(str(error)) from error


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
