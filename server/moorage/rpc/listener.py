"""The gRPC server: all services on one address."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import grpc

from moorage.batches.registry import Batches
from moorage.rpc import unimplemented
from moorage.rpc.admin import Admin
from moorage.rpc.batches import BatchService
from moorage.rpc.guard import raw_unary, two_way_stream, unary
from moorage.rpc.health import Health
from moorage.rpc.inference import Inference
from moorage.rpc.metadata import Metadata
from moorage.rpc.outbox import Window
from moorage.rpc.ports import Backend
from moorage.rpc.reflection import Reflection
from moorage.rpc.repository import Repository
from moorage.rpc.statistics import Statistics
from moorage.rpc.streaming import Streams
from moorage_protocol.services import INFERENCE_METHODS, INFERENCE_SERVICE

_KEEPALIVE_TIME_MS = 20_000
_KEEPALIVE_TIMEOUT_MS = 20_000
_MOST_UNTAKEN_CALLS = 10_000  # some 11 KiB each


@dataclass(frozen=True, slots=True)
class ListenerSettings:
    """address: HOST:PORT, port 0 for any free one; or unix:PATH.

    max_receive_bytes: a larger message is refused by gRPC before it is read.
    max_concurrent_calls: calls beyond it are refused by gRPC at once; watches of health count too.
    window: of each inference stream.
    """

    address: str
    server_version: str
    max_receive_bytes: int = 256 * 1024 * 1024
    max_concurrent_calls: int = 10_000
    window: Window = field(default_factory=Window)


class Listener:
    """Owns the server. Draining is the engine's: it refuses new work, and readiness follows its snapshot."""

    def __init__(self, backend: Backend, settings: ListenerSettings, batches: Batches) -> None:
        self._settings = settings
        self._admin = Admin(backend)
        self._batches = BatchService(backend, batches)
        self._health = Health(backend)
        self._reflection = Reflection()
        self._streams = Streams(backend, settings.window)
        self._server = grpc.aio.server(
            options=(
                ("grpc.max_receive_message_length", settings.max_receive_bytes),
                ("grpc.max_send_message_length", -1),
                # A client whose machine is gone says no goodbye, and its hold has to end all the same.
                ("grpc.keepalive_time_ms", _KEEPALIVE_TIME_MS),
                ("grpc.keepalive_timeout_ms", _KEEPALIVE_TIMEOUT_MS),
                ("grpc.http2.ping_timeout_ms", _KEEPALIVE_TIMEOUT_MS),  # a minute otherwise, whatever the other says
                # Of 1,000 calls and more that wait to be taken gRPC would cancel some, then all, whoever asks for what.
                ("grpc.server.max_pending_requests", _MOST_UNTAKEN_CALLS),
                ("grpc.server.max_pending_requests_hard_limit", 2 * _MOST_UNTAKEN_CALLS),
                ("grpc.so_reuseport", 0),  # two servers on one port would take each other's requests unnoticed
            ),
            maximum_concurrent_rpcs=settings.max_concurrent_calls,
        )
        handlers = dict(_inference_handlers(backend, self._streams, settings.server_version))
        inference = grpc.method_handlers_generic_handler(INFERENCE_SERVICE, handlers)
        # Looked through in this order for every call.
        beside = (self._batches.handler(), self._admin.handler(), self._health.handler(), *self._reflection.handlers())
        self._server.add_generic_rpc_handlers((inference, *beside))

    async def start(self) -> str:
        """Listen, and return the address with the port that was bound. Raises OSError where that is impossible."""
        address = self._settings.address
        try:
            port = self._server.add_insecure_port(address)
        except RuntimeError:
            port = 0
        if not port:
            raise OSError(f"server.grpc: cannot listen on {address}: the address is taken or not of this machine")
        await self._server.start()
        if address.startswith("unix:"):
            return address
        return f"{address.rpartition(':')[0]}:{port}"

    async def stop(self, grace_s: float) -> None:
        """Accept no more calls, let those under way finish for that long, then cancel them.

        Cancellation: the server goes on stopping.
        """
        self._admin.close()
        self._batches.close()
        self._streams.close()
        self._health.close()
        self._reflection.close()
        await self._server.stop(grace_s)


def _inference_handlers(
    backend: Backend, streams: Streams, server_version: str
) -> "Iterator[tuple[str, grpc.RpcMethodHandler[bytes, bytes]]]":
    """A handler for every method of the inference service."""
    metadata = Metadata(backend, server_version)
    repository = Repository(backend)
    handlers: dict[str, unimplemented.Handler] = {
        **unimplemented.HANDLERS,
        "ServerLive": metadata.server_live,
        "ServerReady": metadata.server_ready,
        "ServerMetadata": metadata.server_metadata,
        "ModelReady": metadata.model_ready,
        "ModelMetadata": metadata.model_metadata,
        "ModelConfig": metadata.model_config,
        "ModelStatistics": Statistics(backend).model_statistics,
        "RepositoryIndex": repository.index,
        "RepositoryModelLoad": repository.load,
        "RepositoryModelUnload": repository.unload,
    }
    yield "ModelInfer", raw_unary(Inference(backend).model_infer)
    yield "ModelStreamInfer", two_way_stream(streams.model_stream_infer)
    for name, handler in handlers.items():
        yield name, unary(INFERENCE_METHODS[name], handler)
