"""What both clients' channels have in common."""

from collections.abc import Mapping
from typing import Any

import grpc
import grpc.aio

from moorage_protocol.services import ADMIN_METHODS, BATCH_METHODS, INFERENCE_METHODS, Method

CHANNEL_OPTIONS: tuple[tuple[str, int], ...] = (
    # The server bounds what it takes; a client that asked for a large answer wants all of it.
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    # gRPC's own start at 1 s and grow to 2 min: too slow for a server that was just restarted.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2000),
)

# No name is in two services.
_METHODS: Mapping[str, Method] = {**INFERENCE_METHODS, **ADMIN_METHODS, **BATCH_METHODS}


class Methods:
    """The callables of the services on one channel; each costs more to make than to keep."""

    def __init__(self, channel: grpc.Channel | grpc.aio.Channel) -> None:
        self._channel = channel
        self._callables: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        """Call it with a request; on an aio channel the answer is awaited. Raises KeyError for an unknown method."""
        if name not in self._callables:
            method = _METHODS[name]
            asks, answers = (
                ["unary", "stream"][streams] for streams in (method.client_streaming, method.server_streaming)
            )
            make: Any = getattr(self._channel, f"{asks}_{answers}")
            self._callables[name] = make(
                method.path,
                request_serializer=method.request.SerializeToString,
                response_deserializer=method.response.FromString,
            )
        return self._callables[name]
