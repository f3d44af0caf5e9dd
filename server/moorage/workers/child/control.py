"""The main thread of a worker: takes control messages, has models built one at a time, and ends the process."""

import contextlib
import gc
import os
import queue
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from moorage.domain.model import ModelKey
from moorage.workers.child.building import Built, build
from moorage.workers.child.failures import describe, detail_of
from moorage.workers.child.lane import LaneThread
from moorage.workers.child.memory import release_freed_memory
from moorage.workers.messages import (
    Deframer,
    Hello,
    Loaded,
    LoadModel,
    LoadRefused,
    Stop,
    ToWorker,
    Unloaded,
    UnloadModel,
    frame,
)

_DECODER: msgspec.msgpack.Decoder[ToWorker] = msgspec.msgpack.Decoder(ToWorker)


# How long a lane that came to nothing is kept open for the server to close it first.
_LAST_WORDS_S = 10.0


class ControlLoop:
    """Reads until told to stop, or until the server is gone."""

    def __init__(self, device: str, control: socket.socket, handles: socket.socket) -> None:
        self._device = device
        self._control = control
        self._handles = handles
        self._sending = threading.Lock()
        self._lanes: dict[ModelKey, LaneThread] = {}
        # Frameworks patch global state while they build: all changes to models go through one thread, in order.
        self._changes: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        threading.Thread(target=self._change, name="models", daemon=True).start()

    def run(self) -> None:
        """Serve, and end the process: without waiting for models, whose threads may be busy for long."""
        with _ending_the_process():
            self._send(Hello(os.getpid()))
            deframer = Deframer()
            while data := self._control.recv(65536):
                for body in deframer.feed(data):
                    self._take(_DECODER.decode(body))
        os._exit(0)

    def _take(self, message: ToWorker) -> None:
        match message:
            case LoadModel():
                _, descriptors, _, _ = socket.recv_fds(self._handles, 1, 2)
                lane, segment = descriptors
                self._changes.put(lambda: self._load(message, socket.socket(fileno=lane), segment))
            case UnloadModel(key):
                self._changes.put(lambda: self._unload(key))
            case Stop():
                self._changes.put(self._stop)

    def _change(self) -> None:
        with _ending_the_process():
            while True:
                self._changes.get()()

    def _load(self, message: LoadModel, lane: socket.socket, segment: int) -> None:
        started = time.perf_counter()
        try:
            built = build(message.key, message.blueprint, self._device)
            weights_bytes = built.runtime.weights_bytes()
        except BaseException as error:  # a model may raise anything, SystemExit too
            reason, detail = describe(error, Path(message.blueprint.path)), detail_of(error)
            error.__traceback__ = None  # it holds what was built so far
            del error
            os.close(segment)
            release_freed_memory(self._device)
            self._send(LoadRefused(message.key, reason, detail))
            _close_after_the_server(lane)
            return
        self._serve(message.key, built, lane, segment)
        self._send(Loaded(message.key, weights_bytes, time.perf_counter() - started))

    def _serve(self, key: ModelKey, built: Built, lane: socket.socket, segment: int) -> None:
        thread = LaneThread(key, built, lane, segment)
        self._lanes[key] = thread
        thread.start()

    def _unload(self, key: ModelKey) -> None:
        lane = self._lanes.pop(key, None)
        if lane is not None:
            lane.finish()
            del lane
        gc.collect()
        release_freed_memory(self._device)
        self._send(Unloaded(key))

    def _stop(self) -> None:
        for lane in self._lanes.values():
            lane.finish()
        os._exit(0)

    def _send(self, message: msgspec.Struct) -> None:
        with self._sending:
            self._control.sendall(frame(msgspec.msgpack.encode(message)))


def _close_after_the_server(lane: socket.socket) -> None:
    """Keep a lane that came to nothing until the server has closed its end, which otherwise takes it for our death."""
    lane.settimeout(_LAST_WORDS_S)
    with lane, contextlib.suppress(OSError):
        while lane.recv(4096):
            pass


@contextlib.contextmanager
def _ending_the_process() -> Iterator[None]:
    """A thread that the worker can't do without: where it fails the process ends, and the server sees that at once.

    Quietly where the server has gone, or has closed its side.
    """
    try:
        yield
    except ConnectionError:
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
