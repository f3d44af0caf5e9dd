"""The thread that runs one model: takes what the server asks, does it, answers, and waits for the next."""

import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from moorage.authoring import Batch
from moorage.domain.model import ModelKey
from moorage.workers import segment as segments
from moorage.workers.child.building import Built
from moorage.workers.child.caches import Caches
from moorage.workers.child.failures import failure_of
from moorage.workers.child.gauges import LaneGauge, peak_of
from moorage.workers.child.members import members_of
from moorage.workers.child.memory import wait_for_device
from moorage.workers.child.outputs import OutputWriter
from moorage.workers.child.stepping import Stepping
from moorage.workers.framing import Deframer, frame
from moorage.workers.lane_messages import (
    DropStates,
    Execute,
    Executed,
    ExecuteFailed,
    ExecuteStep,
    FromLane,
    SuspendStates,
    ToLane,
)
from moorage.workers.runtimes import SharedMemory, is_loss_of_device

Asked = TypeVar("Asked", Execute, ExecuteStep)

_DEVICE_LOST = 71  # EX_OSERR of sysexits.h

_DECODER: msgspec.msgpack.Decoder[ToLane] = msgspec.msgpack.Decoder(ToLane)


class LaneThread(threading.Thread):
    """Owns the model's runs: one at a time, in the order they come."""

    def __init__(
        self, key: ModelKey, built: Built, lane: socket.socket, segment: int, caches: Caches, gauge: LaneGauge
    ) -> None:
        super().__init__(name=str(key), daemon=True)
        self._caches = caches
        self._built = built
        self._lane = lane
        self._memory = SharedMemory(segments.attach(segment))
        self._outputs = OutputWriter(built, self._memory)
        self._gauge = gauge
        self._stepping = _stepping(built, self._memory, self._outputs, gauge)
        self._encoder = msgspec.msgpack.Encoder()
        self._device_is_lost = False
        os.close(segment)

    def run(self) -> None:
        deframer = Deframer()
        with self._lane:
            while data := self._receive():
                for body in deframer.feed(data):
                    if not self._send(self._answers(_DECODER.decode(body))):
                        return
                    self._end_if_device_is_lost()

    def finish(self) -> None:
        """The server has closed the lane: wait for the thread, and let the model clean up after itself.

        Never waits for long: the server unloads a model only when none of its runs is under way.
        """
        self.join(timeout=10.0)
        try:
            self._built.runtime.unload()
        except BaseException:  # a model may raise anything, SystemExit too
            traceback.print_exc()

    def _receive(self) -> bytes:
        try:
            return self._lane.recv(65536)
        except ConnectionResetError:
            return b""

    def _send(self, answers: Sequence[FromLane]) -> bool:
        """Whether the server still has its end of the lane open."""
        try:
            for answer in answers:
                self._lane.sendall(frame(self._encoder.encode(answer)))
        except ConnectionError:
            return False
        return True

    def _answers(self, message: ToLane) -> Sequence[FromLane]:
        if isinstance(message, Execute):
            return (self._within_cap(message, self._execute),)
        assert self._stepping is not None, "the server asks for steps only of a model that said it has them"
        if isinstance(message, ExecuteStep) and not message.resuming:
            return (self._within_cap(message, self._stepping.execute),)
        answers = self._moves(message, self._stepping)
        self._caches.copies_ended()
        return answers

    def _moves(self, message: ExecuteStep | SuspendStates | DropStates, stepping: Stepping) -> Sequence[FromLane]:
        """What may give up copies on the host."""
        match message:
            case ExecuteStep():
                return (self._within_cap(message, stepping.execute),)
            case SuspendStates(request_ids):
                return stepping.suspend(request_ids)
            case DropStates(request_ids):
                return (stepping.drop(request_ids),)

    def _within_cap(self, message: Asked, execute: Callable[[Asked], FromLane]) -> FromLane:
        self._caches.wait_for_cap(message.after_cap)
        answer = execute(message)
        self._give_back()  # by now nothing here refers to what was computed
        return answer

    def _give_back(self) -> None:
        """What was computed is not lost where this fails."""
        try:
            self._caches.run_ended()
        except Exception as error:
            traceback.print_exc()
            self._device_is_lost |= is_loss_of_device(error)

    def _execute(self, message: Execute) -> Executed | ExecuteFailed:
        try:
            return self._compute(message)
        except BaseException as error:  # a model may raise anything, SystemExit too
            self._device_is_lost = is_loss_of_device(error)
            return failure_of(message.run_id, error)

    def _end_if_device_is_lost(self) -> None:
        """End the process once the failure is told: the server starts another, which can use the device."""
        if self._device_is_lost or (self._stepping is not None and self._stepping.device_is_lost):
            print(f"{self.name}: the device failed, and this process with it", file=sys.stderr, flush=True)  # noqa: T201
            os._exit(_DEVICE_LOST)

    def _compute(self, message: Execute) -> Executed:
        began = time.perf_counter_ns()
        input_bytes = sum(item.size_bytes for item in message.inputs)
        (outputs, ready), taken = self._gauge.run(message.rows, input_bytes, lambda: self._infer(message))
        computed = time.perf_counter_ns()
        self._outputs.free_offset = message.free_offset
        references = self._outputs.write("infer", outputs, [member.rows for member in message.members])
        written = time.perf_counter_ns()
        times = (ready - began, computed - ready, written - computed)
        return Executed(message.run_id, references, *times, *peak_of(taken))

    def _infer(self, message: Execute) -> tuple[Mapping[str, Any], int]:
        """What the model makes of the inputs, and when it had them."""
        runtime = self._built.runtime
        inputs = {item.name: runtime.arrays.read(self._memory, item) for item in message.inputs}
        shapes = {item.name: item.shape for item in message.inputs}
        members = members_of(message)
        ready = time.perf_counter_ns()
        outputs = runtime.infer(inputs, Batch(members, message.rows, shapes))
        wait_for_device(self._built.device)
        return outputs, ready


def _stepping(built: Built, memory: SharedMemory, outputs: OutputWriter, gauge: LaneGauge) -> Stepping | None:
    states = built.runtime.states
    return None if states is None else Stepping(built.device, states, built.runtime.arrays, memory, outputs, gauge)
