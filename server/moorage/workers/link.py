"""The server's end of one socket to a worker."""

import asyncio
import socket
from collections.abc import Callable
from typing import Generic, TypeVar, cast

import msgspec

from moorage.workers.framing import Deframer, frame

Received = TypeVar("Received")


class Link(asyncio.Protocol, Generic[Received]):
    """Sends and receives whole messages over a connected Unix socket.

    on_message gets each decoded message, in order. on_close is called once, with the reason, when the socket ends
    or brings what is no message; the other side is then to be given up.
    """

    def __init__(
        self,
        decoder: msgspec.msgpack.Decoder[Received],
        on_message: Callable[[Received], None],
        on_close: Callable[[str], None],
    ) -> None:
        self._decoder = decoder
        self._on_message = on_message
        self._on_close = on_close
        self._encoder = msgspec.msgpack.Encoder()
        self._deframer = Deframer()
        self._transport: asyncio.Transport | None = None
        self._closed = False

    async def open(self, end: socket.socket) -> None:
        """Take over a connected socket."""
        end.setblocking(False)
        await asyncio.get_running_loop().create_unix_connection(lambda: self, sock=end)

    def send(self, message: msgspec.Struct) -> None:
        """Send one message, at once or as soon as the socket takes it. Without effect once it is closed."""
        if self._transport is not None and not self._closed:
            self._transport.write(frame(self._encoder.encode(message)))

    def close(self) -> None:
        """Close without telling on_close."""
        self._closed = True
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass of it

    def data_received(self, data: bytes) -> None:
        try:
            for body in self._deframer.feed(data):
                self._on_message(self._decoder.decode(body))
        except (ValueError, msgspec.MsgspecError) as error:
            self._give_up(f"sent what is no message: {error}")

    def connection_lost(self, exc: Exception | None) -> None:
        self._give_up("closed its socket")

    def _give_up(self, reason: str) -> None:
        if not self._closed:
            self.close()
            self._on_close(reason)
