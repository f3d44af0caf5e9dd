"""grpc.health.v1: the server, the inference service, and every model by its name.

Check reads a status from the snapshot whenever it is asked. For the watchers, of whom there may be thousands, one
snapshot is taken after each change. The servicer that comes with grpcio keeps statuses of its own, can't forget a model
that is gone, and lets one watcher that does not read hold up the updates of all.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING

import grpc
from grpc_health.v1 import health_pb2

from moorage.domain.errors import ServerDraining
from moorage.engine.snapshot import ServerSnapshot
from moorage.rpc.guard import parse, raw_unary, server_stream
from moorage.rpc.lookup import current
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
        self._shared: Mapping[str, int] | None = None
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
        self._shared = None
        for changed in self._watchers:
            changed.set()

    def _shared_statuses(self) -> Mapping[str, int]:
        """Statuses since the last change."""
        if self._shared is None:
            self._shared = _statuses(self._backend.snapshot())
        return self._shared

    async def _check(self, body: bytes, context: "Context") -> bytes:
        status = _statuses(self._backend.snapshot()).get(_service(body))
        if status is None:
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
                status = self._shared_statuses().get(service, int(_Response.SERVICE_UNKNOWN))
                if status != told:
                    yield _serialized(status)
                    told = status
                else:
                    await changed.wait()
        finally:
            self._watchers.discard(changed)
        raise ServerDraining


def _statuses(snapshot: ServerSnapshot) -> Mapping[str, int]:
    """The status of everything that there is, by its name."""
    serving = dict.fromkeys((broken.name for broken in snapshot.broken), False)
    for model in current(snapshot):
        name = model.key.name
        serving[name] = serving.get(name, False) or (model.ready and not snapshot.draining)
    serving |= dict.fromkeys(_SERVER_NAMES, server_ready(snapshot))
    return {name: int(_Response.SERVING if serves else _Response.NOT_SERVING) for name, serves in serving.items()}


def _service(body: bytes) -> str:
    return str(parse(health_pb2.HealthCheckRequest, body).service)


def _serialized(status: int) -> bytes:
    serialized: bytes = _Response(status=status).SerializeToString()
    return serialized
