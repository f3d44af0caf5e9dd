"""The HTTP side's listener: uvicorn inside the server's own event loop."""

import asyncio
import contextlib
import math
import socket
from collections.abc import Callable, Iterator

import uvicorn

from moorage.engine.snapshot import ServerSnapshot
from moorage.web.application import application

# Probes need a handful of connections. More open at once than this get 503: health checks gone wild, or somebody
# hostile, may not take the event loop's time, which gRPC shares.
_MAX_CONNECTIONS = 256
# Connections that the kernel holds until they are accepted; what comes on top it turns away by itself.
_BACKLOG = 128


class HttpServer:
    """Serves the application on one address, from start to stop."""

    def __init__(self, host: str, port: int, view: Callable[[], ServerSnapshot]) -> None:
        self._host = host
        self._port = port
        self._view = view
        self._server: _Server | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> str:
        """Listen; returns the address, with the port that was bound where port 0 was asked for.

        Raises OSError where the address is taken or does not exist. Cancellation: nothing is left listening.
        """
        listener = await _bound_socket(self._host, self._port)
        self._server = _Server(self._view)
        self._task = asyncio.create_task(self._server.serve(sockets=[listener]), name="http")
        started = asyncio.create_task(self._server.has_started.wait())
        try:
            await asyncio.wait({self._task, started}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._task.cancel()
            listener.close()
            raise
        finally:
            started.cancel()
        if self._task.done():
            listener.close()
            await self._task  # raises what went wrong
        return _address(listener)

    async def stop(self, grace_s: float) -> None:
        """Stop listening, and let answers under way finish, for at most grace_s. Without a start it does nothing.

        Cancellation: connections are dropped at once.
        """
        if self._server is None or self._task is None:
            return
        self._server.config.timeout_graceful_shutdown = max(1, math.ceil(grace_s))
        self._server.should_exit = True
        try:
            async with asyncio.timeout(grace_s + 1.0):
                await self._task
        except TimeoutError:
            pass  # the timeout has cancelled the task: what was still open is dropped
        self._server = self._task = None


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: signals are the server's own business."""

    def __init__(self, view: Callable[[], ServerSnapshot]) -> None:
        super().__init__(
            uvicorn.Config(
                application(view),
                lifespan="off",
                ws="none",
                log_config=None,
                access_log=False,
                limit_concurrency=_MAX_CONNECTIONS,
                backlog=_BACKLOG,
            )
        )
        self.has_started = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        self.has_started.set()


async def _bound_socket(host: str, port: int) -> socket.socket:
    """A listening socket, bound here so that an address which is taken is an OSError and no exit of the process."""
    loop = asyncio.get_running_loop()
    family, kind, protocol, _, address = (
        await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    )[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setblocking(False)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
