"""The main thread of a worker: takes control messages, has them done on other threads, and ends the process."""

import contextlib
import os
import socket
import threading
import time
from pathlib import Path

import msgspec

from moorage.workers.child.building import build
from moorage.workers.child.caches import Caches
from moorage.workers.child.failures import describe, detail_of
from moorage.workers.child.gauges import Gauges, LaneGauge, meter_of
from moorage.workers.child.in_order import InOrder, ending_the_process
from moorage.workers.child.lane import LaneThread
from moorage.workers.child.memory import release_freed_memory, wait_for_device
from moorage.workers.child.transfers import Present, Transfers
from moorage.workers.framing import Deframer, frame
from moorage.workers.messages import (
    GiveBack,
    Hello,
    Loaded,
    LoadModel,
    LoadRefused,
    OffloadModel,
    RestoreModel,
    SetCap,
    Stop,
    ToWorker,
    UnloadModel,
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
        self._caches = Caches(device, self._send)
        self._gauges = Gauges(meter_of(device))
        self._transfers = Transfers(device, self._send, self._caches)
        # Frameworks patch global state while they build: all loads go through one thread, in order.
        self._loads = InOrder("models")
        # What makes room for others must not wait for them.
        self._moves = InOrder("transfers")

    def run(self) -> None:
        """Serve, and end the process: without waiting for models, whose threads may be busy for long."""
        with ending_the_process():
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
                opened = socket.socket(fileno=lane)
                self._loads.put(lambda: self._gauges.beside(lambda: self._load(message, opened, segment)))
            case UnloadModel(key):
                # One that is not there yet has its own load to wait for.
                thread = self._moves if key in self._transfers else self._loads
                thread.put(lambda: self._gauges.beside(lambda: self._transfers.unload(key)))
            case OffloadModel(key):
                self._moves.put(lambda: self._gauges.beside(lambda: self._transfers.offload(key)))
            case RestoreModel(key):
                self._moves.put(lambda: self._gauges.beside(lambda: self._transfers.restore(key)))
            case SetCap():
                self._caches.set_cap(message)  # at once: what comes next, on whichever thread, counts on it
            case GiveBack():
                self._caches.give_back()
            case Stop():
                self._loads.put(self._stop)

    def _load(self, message: LoadModel, lane: socket.socket, segment: int) -> None:
        started = time.perf_counter()
        try:
            built = build(message.key, message.blueprint, self._device, self._caches.apply_cap)
            wait_for_device(self._device)
            weights_bytes, can_offload = built.runtime.weights_bytes(), built.runtime.can_offload
        except BaseException as error:  # a model may raise anything, SystemExit too
            reason, detail = describe(error, Path(message.blueprint.path)), detail_of(error)
            error.__traceback__ = None  # it holds what was built so far
            del error
            os.close(segment)
            release_freed_memory(self._device)
            self._send(LoadRefused(message.key, reason, detail))
            _close_after_the_server(lane)
            return
        gauge = LaneGauge(self._gauges, measures_all=message.blueprint.measures_all)
        thread = LaneThread(message.key, built, lane, segment, self._caches, gauge)
        self._transfers.add(message.key, Present(built.runtime, Path(message.blueprint.path), thread))
        thread.start()
        load_s = time.perf_counter() - started
        self._send(Loaded(message.key, weights_bytes, load_s, built.runtime.stepped, can_offload))

    def _stop(self) -> None:
        self._transfers.finish_all()
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
