"""The thread of one instance of a model: takes what the server asks, does it, answers, and waits for the next."""

import os
import queue
import socket
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from moorage.authoring import Batch
from moorage.domain.model import ModelKey, WarmupRun
from moorage.domain.request import RehearsedRun
from moorage.workers import segment as segments
from moorage.workers.child.building import Built
from moorage.workers.child.caches import Caches
from moorage.workers.child.failures import Refusal, describe, detail_of, end_with_device, failure_of, let_go
from moorage.workers.child.gauges import LaneGauge, peak_of
from moorage.workers.child.members import members_of
from moorage.workers.child.memory import take_own_stream, wait_for_stream
from moorage.workers.child.outputs import OutputWriter
from moorage.workers.child.stepping import Stepping
from moorage.workers.child.warmup import warm_up
from moorage.workers.framing import Deframer, frame
from moorage.workers.lane_messages import (
    DropStates,
    Execute,
    Executed,
    ExecuteFailed,
    ExecuteStep,
    FromLane,
    Member,
    StartingMember,
    SuspendStates,
    TensorReference,
    ToLane,
)
from moorage.workers.runtimes import SharedMemory, is_loss_of_device

Asked = TypeVar("Asked", Execute, ExecuteStep)

# How a warm-up's runs call themselves: no run of the server's has this number.
_WARMUP_ID, _WARMUP_NAME = 0, "warmup"

_DECODER: msgspec.msgpack.Decoder[ToLane] = msgspec.msgpack.Decoder(ToLane)


@dataclass(frozen=True, slots=True)
class LaneHandles:
    """A lane as it comes from the server: its socket, and the descriptor of its memory, which its thread closes."""

    socket: socket.socket
    segment: int


@dataclass(frozen=True, slots=True)
class Opened:
    """An instance can be used.

    weights_bytes: measured when it was warm; warmup_s: what that took. rehearsed: see Loaded.
    """

    weights_bytes: int
    can_offload: bool
    warmup_s: float
    rehearsed: tuple[RehearsedRun, ...]


class LaneThread(threading.Thread):
    """Owns an instance's runs: one at a time, in the order they come. Other instances' go on beside them."""

    def __init__(self, key: ModelKey, built: Built, lane: LaneHandles, caches: Caches, gauge: LaneGauge) -> None:
        super().__init__(name=str(key), daemon=True)
        self._caches = caches
        self._built = built
        self._lane = lane.socket
        self._memory = SharedMemory(segments.attach(lane.segment))
        self._outputs = OutputWriter(built, self._memory)
        self._gauge = gauge
        self._stepping = _stepping(built, self._memory, self._outputs, gauge)
        self._encoder = msgspec.msgpack.Encoder()
        self._device_is_lost = False
        self._warmup: Sequence[WarmupRun] = ()
        self._folder = Path()
        self._opened: queue.SimpleQueue[Opened | Refusal] = queue.SimpleQueue()
        self._admitted: queue.SimpleQueue[bool] = queue.SimpleQueue()
        os.close(lane.segment)

    def open(self, warmup: Sequence[WarmupRun], folder: Path) -> Opened | Refusal:
        """Start the thread, and wait for its first runs: frameworks keep some of what they prepare for each thread.

        It serves only once it is told to: of a model that is refused nothing is served. folder: the model's, for what
        is said of it.
        """
        self._warmup, self._folder = warmup, folder
        self.start()
        return self._opened.get()

    def serve(self) -> None:
        """All instances of the model are open."""
        self._admitted.put(True)

    def finish(self) -> None:
        """Wait for the thread: it was never told to serve, or the server has closed the lane.

        Never waits for long: the server unloads a model only when none of its runs is under way.
        """
        self._admitted.put(False)
        if self.ident is not None:  # it was started
            self.join(timeout=10.0)

    def run(self) -> None:
        self._opened.put(self._open())
        if self._admitted.get():
            self._serve()

    def _open(self) -> Opened | Refusal:
        try:
            take_own_stream(self._built.device, urgent=self._built.urgent)
            return self._warm_up()
        except BaseException as error:  # a model may raise anything, SystemExit too
            return Refusal(describe(error, self._folder), detail_of(error), is_loss_of_device(error))

    def _warm_up(self) -> Opened | Refusal:
        began_s = time.perf_counter()
        runtime, batched = self._built.runtime, self._built.batched
        rehearsed = warm_up(self._warmup, self._memory.memory, self._rehearse, self._folder, batched=batched)
        if isinstance(rehearsed, Refusal):
            return rehearsed
        if self._warmup:
            self._give_back()
        warmup_s = time.perf_counter() - began_s
        return Opened(runtime.weights_bytes(), runtime.can_offload, warmup_s, rehearsed)

    def _rehearse(self, rows: int, inputs: tuple[TensorReference, ...], free_offset: int) -> RehearsedRun:
        """Do what a request would have done, and keep nothing of it. Raises whatever the model raises."""
        run = RehearsedRun(rows, sum(item.size_bytes for item in inputs) // rows)
        if self._stepping is None:
            members = (Member(_WARMUP_NAME, rows, {}),)
            done = self._compute(Execute(_WARMUP_ID, rows, inputs, members, free_offset))
            seconds = (done.input_ns + done.infer_ns + done.output_ns) / 1e9
            run = replace(run, peak_bytes=done.peak_bytes, seconds=seconds)
        else:
            self._stepping.rehearse(StartingMember(_WARMUP_ID, _WARMUP_NAME, rows, {}, inputs), free_offset)
        segments.trim(self._memory.memory, self._outputs.free_offset)
        return run

    def _serve(self) -> None:
        deframer = Deframer()
        with self._lane:
            while data := self._receive():
                for body in deframer.feed(data):
                    if not self._send(self._answers(_DECODER.decode(body))):
                        return
                    self._end_if_device_is_lost()

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
        # By now nothing here refers to what was computed.
        self._give_back(ran_out=isinstance(answer, ExecuteFailed) and answer.failure.out_of_memory)
        return answer

    def _give_back(self, *, ran_out: bool = False) -> None:
        """What was computed is not lost where this fails. ran_out: the run found no memory."""
        try:
            if ran_out:
                self._caches.ran_out()
            else:
                self._caches.run_ended()
        except Exception as error:
            traceback.print_exc()
            self._device_is_lost |= is_loss_of_device(error)

    def _execute(self, message: Execute) -> Executed | ExecuteFailed:
        try:
            return self._compute(message)
        except BaseException as error:  # a model may raise anything, SystemExit too
            self._device_is_lost = is_loss_of_device(error)
            failed = ExecuteFailed(message.run_id, failure_of(error))
            let_go(error)
            return failed

    def _end_if_device_is_lost(self) -> None:
        if self._device_is_lost or (self._stepping is not None and self._stepping.device_is_lost):
            end_with_device(self.name)

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
        wait_for_stream(self._built.device)
        return outputs, ready


def _stepping(built: Built, memory: SharedMemory, outputs: OutputWriter, gauge: LaneGauge) -> Stepping | None:
    states = built.runtime.states
    return None if states is None else Stepping(built, states, memory, outputs, gauge)
