"""The composition root: builds every room, starts them inside-out, and drains them outside-in."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass
from typing import Any

from moorage import __version__
from moorage.app.capping import Caps
from moorage.app.footprints import RememberedFootprints
from moorage.app.watching import watch_devices
from moorage.batches.registry import Batches, BatchLimits
from moorage.config import Address, Settings
from moorage.devices import heap
from moorage.devices.visible import cuda_environment
from moorage.engine.backend import Backend
from moorage.engine.catalog import Catalog
from moorage.engine.control import Control
from moorage.engine.engine import Engine
from moorage.engine.ports import Repository
from moorage.repository.disk import DiskRepository
from moorage.rpc.batch_edge import BatchEdge
from moorage.rpc.listener import Listener, ListenerSettings
from moorage.rpc.outbox import Window
from moorage.scheduling.scheduler import Scheduler
from moorage.scheduling.state import DeviceLimits, Limits
from moorage.web.server import HttpServer
from moorage.workers.pool import WorkerPool

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
    batches: Batches
    patience: _Patience

    async def drain(self, grace_s: float) -> bool:
        """Take no new work, and wait for what was accepted; whether it was all done in time.

        Of batches that is what runs; the rest of a durable one waits for the next server.
        """
        self.batches.stop_feeding()
        return await self.engine.drain(grace_s)

    def hurry(self) -> None:
        """End without waiting for anything more: calls are cut off, workers killed."""
        self.patience.connections_s = self.patience.workers_s = 0.0


@contextlib.asynccontextmanager
async def serving(
    settings: Settings, repository: Repository | None = None, *, measures_all: bool = False
) -> AsyncIterator[Server]:
    """Run a server inside the current loop. Leaving it ends everything it started; drain first to finish work.

    repository: by default the folder that the settings name. measures_all: the memory of every run, whatever it costs.
    Raises OSError where an address can't be bound, RepositoryError where there is no repository, StoreRefused for a
    file of batches that is not ours.
    """
    scheduler = Scheduler(_device_limits(settings), _limits(settings))
    engine = Engine(scheduler, check_integrity=settings.server.check_integrity)
    environment = {**heap.environment(), **cuda_environment()}
    pool = WorkerPool(engine.post, engine.report, environment, measures_all=measures_all)
    engine.attach(pool)
    engine.observe(Caps(scheduler.state, pool).decided)
    catalog = Catalog()
    remembered = RememberedFootprints(settings.server.footprints, engine)
    await remembered.recall()
    engine.observe(remembered.decided)
    control = Control(engine, catalog, repository or DiskRepository(settings.repository.path), remembered.of)
    backend = Backend(engine, catalog, control)
    batches = Batches(backend, BatchEdge(backend), _batch_limits(settings))
    engine.observe(batches.decided)
    patience = _Patience()
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(lambda: pool.close(patience.workers_s))
        owner = asyncio.create_task(engine.run(), name="engine")
        stack.push_async_callback(_cancel, owner)
        stack.push_async_callback(remembered.keep)
        stack.callback(control.close)
        await control.register_all()
        stack.push_async_callback(batches.close)
        listener = Listener(backend, _listener_settings(settings), batches)
        grpc_address = await listener.start()
        stack.push_async_callback(lambda: listener.stop(patience.connections_s))
        http_address = None
        if settings.server.http is not None:
            http = HttpServer(*settings.server.http, backend.snapshot)
            http_address = await _start_http(http, settings.server.http)
            stack.push_async_callback(lambda: http.stop(patience.connections_s))
        # Only now, as an address that is taken must not cost the loading of models first.
        control.begin()
        await batches.start()
        for chore in (_keep_house(engine, remembered), watch_devices(settings, engine, pool), batches.chores()):
            task = asyncio.create_task(_without_end(chore))
            stack.push_async_callback(_cancel, task)
        started = Started(
            grpc_address=grpc_address,
            http_address=http_address,
            repository=str(settings.repository.path),
            devices=tuple((name, device.budget_bytes) for name, device in settings.devices.items()),
            models=tuple(str(serving.key) for serving in catalog.all()),
            broken=tuple(sorted(catalog.broken.items())),
        )
        yield Server(started, backend, engine, pool, owner, batches, patience)


async def _start_http(http: HttpServer, address: Address) -> str:
    try:
        return await http.start()
    except OSError as error:
        raise OSError(f"server.http: cannot listen on {address}: {error.strerror or error}") from error


async def _without_end(chore: Coroutine[Any, Any, None]) -> None:
    """Do something beside serving. The server goes on without it where it fails, and says so."""
    try:
        await chore
    except Exception:
        log.exception("a chore has failed: the server goes on without it")


async def _keep_house(engine: Engine, remembered: RememberedFootprints) -> None:
    """Now and then: keep what was measured; and, when idle, see that the ledger is right and give free memory back."""
    while True:
        await asyncio.sleep(_HOUSEKEEPING_S)
        await remembered.keep()
        if engine.is_idle:
            try:
                engine.scheduler.check_integrity()
            except AssertionError:
                log.critical("the ledger has drifted: please report this", exc_info=True)
            await asyncio.to_thread(heap.give_back)


def _device_limits(settings: Settings) -> dict[str, DeviceLimits]:
    return {
        name: DeviceLimits(
            device.budget_bytes - device.reserve_bytes,
            device.context_bytes,
            device.host_budget_bytes,
            device.run_slots,
        )
        for name, device in settings.devices.items()
    }


def _batch_limits(settings: Settings) -> BatchLimits:
    return BatchLimits(
        path=settings.batches.path,
        max_bytes=settings.batches.max_store_bytes,
        fsync=settings.batches.fsync,
        max_running=settings.batches.max_running,
        window_items=settings.batches.max_window_items,
        window_bytes=settings.batches.max_window_bytes,
    )


def _limits(settings: Settings) -> Limits:
    hang_timeout_s = settings.server.hang_timeout_s
    return Limits(
        max_input_bytes=settings.server.max_message_bytes,
        max_waiting_rows=settings.server.max_queue_rows,
        max_waiting_bytes=settings.server.max_queue_bytes,
        max_unload_s=hang_timeout_s,
        hang_timeout_s=hang_timeout_s,
        ageing_s=settings.server.ageing_s,
        min_residency_s=settings.server.min_residency_s,
    )


def _listener_settings(settings: Settings) -> ListenerSettings:
    return ListenerSettings(
        address=str(settings.server.grpc),
        server_version=__version__,
        max_receive_bytes=settings.server.max_message_bytes,
        max_concurrent_calls=settings.server.max_concurrent_rpcs,
        window=Window(settings.server.max_stream_requests, settings.server.max_stream_bytes),
    )


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
