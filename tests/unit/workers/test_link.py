"""The server's end of a worker's socket: whole messages in order, and garbage ends it without being believed."""

import asyncio
import pickle
import socket

import msgspec
import pytest

from moorage.workers.framing import frame
from moorage.workers.link import Link
from moorage.workers.messages import FromWorker, Hello, Unloaded, UnloadModel

DECODER: msgspec.msgpack.Decoder[FromWorker] = msgspec.msgpack.Decoder(FromWorker)


class Peer:
    """A link under test, and the raw socket at its other end."""

    def __init__(self) -> None:
        self.messages: list[FromWorker] = []
        self.reasons: list[str] = []
        self.closed = asyncio.Event()
        self.link: Link[FromWorker] = Link(DECODER, self.messages.append, self._on_close)

    def _on_close(self, reason: str) -> None:
        self.reasons.append(reason)
        self.closed.set()

    async def open(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        await self.link.open(ours)
        return theirs


def test_messages_come_whole_and_in_order() -> None:
    async def scenario() -> Peer:
        peer = Peer()
        with await peer.open() as other:
            for pid in (1, 2, 3):
                other.sendall(frame(msgspec.msgpack.encode(Hello(pid))))
        await asyncio.wait_for(peer.closed.wait(), 5)
        return peer

    peer = asyncio.run(scenario())
    assert peer.messages == [Hello(1), Hello(2), Hello(3)]
    assert peer.reasons == ["closed its socket"]


class Bomb:
    def __reduce__(self) -> tuple[object, ...]:
        return (pytest.fail, ("request bytes were unpickled",))


@pytest.mark.parametrize(
    "garbage",
    [
        b"\xff" * 64,
        frame(b"not msgpack at all"),
        frame(pickle.dumps(Bomb())),
        frame(msgspec.msgpack.encode(UnloadModel(("m", 1, 0)))),  # type: ignore[arg-type]
        frame(msgspec.msgpack.encode(["Hello", "no pid"])),
    ],
)
def test_garbage_ends_the_link_once(garbage: bytes) -> None:
    async def scenario() -> Peer:
        peer = Peer()
        with await peer.open() as other:
            other.sendall(garbage)
            await asyncio.wait_for(peer.closed.wait(), 5)
        return peer

    peer = asyncio.run(scenario())
    assert peer.messages == []
    assert len(peer.reasons) == 1
    assert "no message" in peer.reasons[0]


def test_closing_it_oneself_is_not_reported() -> None:
    async def scenario() -> Peer:
        peer = Peer()
        with await peer.open() as other:
            peer.link.close()
            peer.link.send(Unloaded(("m", 1, 0), 0))  # type: ignore[arg-type]
            other.settimeout(5)
            assert await asyncio.to_thread(other.recv, 1) == b""
        return peer

    assert asyncio.run(scenario()).reasons == []
