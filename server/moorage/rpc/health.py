"""grpc.health.v1: the server, the inference service, and every model by its name.

The status is read from the snapshot whenever it is asked for. The servicer that comes with grpcio keeps statuses of
its own, can't forget a model that is gone, and lets one watcher that does not read hold up the updates of all.
"""

import asyncio
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

import grpc
from grpc_health.v1 import health_pb2

from moorage.domain.errors import ServerDraining
from moorage.rpc.guard import parse, raw_unary, server_stream
from moorage.rpc.lookup import versions
from moorage.rpc.metadata import server_ready
from moorage.rpc.ports import Backend
from moorage_protocol.services import INFERENCE_SERVICE

if TYPE_CHECKING:
    from moorage.rpc.guard import Context

SERVICE = "grpc.health.v1.Health"

_Response = health_pb2.HealthCheckResponse
_SERVER_NAMES = frozenset({"", INFERENCE_SERVICE})


class Health:
    """Answers Check, and tells every watcher of each change."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._watchers: set[asyncio.Event] = set()
        self._closed = False
        backend.subscribe(self._wake)

    def handler(self) -> grpc.GenericRpcHandler:
        """What a server registers."""
        methods = {"Check": raw_unary(self._check), "Watch": server_stream(self._watch)}
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    def close(self) -> None:
        """End all watches, so that they do not hold up the server's stop."""
        self._closed = True
        self._wake()

    def _wake(self) -> None:
        for changed in self._watchers:
            changed.set()

    def _status(self, service: str) -> int:
        snapshot = self._backend.snapshot()
        if service in _SERVER_NAMES:
            serving = server_ready(snapshot)
        else:
            models = versions(snapshot, service)
            if not models and all(broken.name != service for broken in snapshot.broken):
                return int(_Response.SERVICE_UNKNOWN)
            serving = not snapshot.draining and any(model.ready for model in models)
        return int(_Response.SERVING if serving else _Response.NOT_SERVING)

    async def _check(self, body: bytes, context: "Context") -> bytes:
        status = self._status(_service(body))
        if status == _Response.SERVICE_UNKNOWN:
            await context.abort(grpc.StatusCode.NOT_FOUND, "unknown service")
        return _serialized(status)

    async def _watch(self, body: bytes, _: "Context") -> AsyncGenerator[bytes]:
        """The status now, and then whenever it is another one. Raises ServerDraining once the server stops."""
        service = _service(body)
        changed = asyncio.Event()
        self._watchers.add(changed)
        try:
            told: int | None = None
            while not self._closed:
                changed.clear()
                status = self._status(service)
                if status != told:
                    yield _serialized(status)
                    told = status
                else:
                    await changed.wait()
        finally:
            self._watchers.discard(changed)
        raise ServerDraining


def _service(body: bytes) -> str:
    return str(parse(health_pb2.HealthCheckRequest, body).service)


def _serialized(status: int) -> bytes:
    serialized: bytes = _Response(status=status).SerializeToString()
    return serialized
