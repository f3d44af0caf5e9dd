"""B40, the worker's side: bytes that are no message end the worker, at once and without being taken for anything."""

import os
import pickle
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from moorage.workers.framing import Deframer, frame
from moorage.workers.messages import Hello as HelloMessage

_GARBAGE = {
    "zeros": bytes(64),
    "a length beyond the limit": b"\xff\xff\xff\xff",
    "a message of random bytes": frame(bytes(range(256))),
    "a pickle": frame(pickle.dumps({"a": print})),
    "a message for the server": frame(b"\x92\xa5Hello\x01"),
}


@contextmanager
def _worker() -> Iterator[tuple[subprocess.Popen[bytes], socket.socket]]:
    """A real worker process that has said hello, and the server's end of its control socket."""
    pairs = [socket.socketpair() for _ in range(3)]
    theirs = [their for _, their in pairs]
    command = [sys.executable, "-P", "-m", "moorage.workers.child", "cpu", str(os.getpid())]
    command += [str(end.fileno()) for end in theirs]
    process = subprocess.Popen(command, pass_fds=[end.fileno() for end in theirs], stderr=subprocess.DEVNULL)
    for end in theirs:
        end.close()
    control = pairs[0][0]
    control.settimeout(20.0)
    try:
        (hello,) = Deframer().feed(control.recv(4096))
        assert HelloMessage.__name__.encode() in hello
        yield process, control
    finally:
        process.kill()
        process.wait()
        for ours, _ in pairs:
            ours.close()


@pytest.mark.parametrize("garbage", _GARBAGE)
def test_garbage_ends_it(garbage: str) -> None:
    with _worker() as (process, control):
        control.sendall(_GARBAGE[garbage])
        assert process.wait(5.0) == 1


def test_it_ends_quietly_with_its_server() -> None:
    with _worker() as (process, control):
        control.close()
        assert process.wait(5.0) == 0


def test_what_it_does_not_know_it_does_not_mind() -> None:
    """An unload of a model that it never had is confirmed: the memory is free."""
    with _worker() as (_, control):
        control.sendall(frame(b"\x92\xabUnloadModel\x93\xa1x\x01\x00"))
        (answer,) = Deframer().feed(control.recv(4096))
        assert b"Unloaded" in answer
