"""The main thread of a worker: takes control messages, has them done on other threads, and ends the process."""

import os
import socket
import threading

import msgspec

from moorage.workers.child.caches import Caches
from moorage.workers.child.gauges import Gauges, meter_of
from moorage.workers.child.in_order import InOrder, ending_the_process
from moorage.workers.child.lane import LaneHandles
from moorage.workers.child.loading import Loading
from moorage.workers.child.transfers import Transfers
from moorage.workers.framing import Deframer, frame
from moorage.workers.messages import (
    GiveBack,
    Hello,
    LoadModel,
    OffloadModel,
    RestoreModel,
    SetCap,
    Stop,
    ToWorker,
    UnloadModel,
)

_DECODER: msgspec.msgpack.Decoder[ToWorker] = msgspec.msgpack.Decoder(ToWorker)


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
        self._loading = Loading(device, self._send, self._caches, self._transfers, self._gauges)
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
                lanes = self._lanes(message.blueprint.instances)
                self._loads.put(lambda: self._loading.load(message, lanes))
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

    def _lanes(self, count: int) -> list[LaneHandles]:
        _, descriptors, _, _ = socket.recv_fds(self._handles, 1, 2 * count)
        pairs = zip(descriptors[::2], descriptors[1::2], strict=True)
        return [LaneHandles(socket.socket(fileno=lane), segment) for lane, segment in pairs]

    def _stop(self) -> None:
        self._transfers.finish_all()
        os._exit(0)

    def _send(self, message: msgspec.Struct) -> None:
        with self._sending:
            self._control.sendall(frame(msgspec.msgpack.encode(message)))
