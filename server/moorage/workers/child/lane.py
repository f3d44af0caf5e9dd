"""The thread that runs one model: takes an Execute, computes, answers, and waits for the next."""

import os
import socket
import threading
import time
import traceback
from collections.abc import Sequence

import msgspec

from moorage.authoring import Batch, BatchMember
from moorage.domain.model import ModelKey
from moorage.domain.tensor import TensorSpec
from moorage.workers import segment as segments
from moorage.workers.child.building import Built
from moorage.workers.child.failures import detail_of
from moorage.workers.messages import (
    Deframer,
    Execute,
    Executed,
    ExecuteFailed,
    OutputReference,
    ToLane,
    frame,
)
from moorage.workers.runtimes import BrokenContract, Payload, SharedMemory, is_out_of_memory

_DECODER: msgspec.msgpack.Decoder[ToLane] = msgspec.msgpack.Decoder(ToLane)


class LaneThread(threading.Thread):
    """Owns the model's runs: one at a time, in the order they come."""

    def __init__(self, key: ModelKey, built: Built, lane: socket.socket, segment: int) -> None:
        super().__init__(name=str(key), daemon=True)
        self._built = built
        self._lane = lane
        self._memory = SharedMemory(segments.attach(segment))
        self._encoder = msgspec.msgpack.Encoder()
        os.close(segment)

    def run(self) -> None:
        deframer = Deframer()
        with self._lane:
            while data := self._receive():
                for body in deframer.feed(data):
                    answer = self._execute(_DECODER.decode(body))
                    if not self._send(answer):
                        return

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

    def _send(self, answer: Executed | ExecuteFailed) -> bool:
        """Whether the server still has its end of the lane open."""
        try:
            self._lane.sendall(frame(self._encoder.encode(answer)))
        except ConnectionError:
            return False
        return True

    def _execute(self, message: Execute) -> Executed | ExecuteFailed:
        try:
            return self._compute(message)
        except BaseException as error:  # a model may raise anything, SystemExit too
            return ExecuteFailed(message.run_id, is_out_of_memory(error), detail_of(error))

    def _compute(self, message: Execute) -> Executed:
        runtime = self._built.runtime
        began = time.perf_counter_ns()
        inputs = {item.name: runtime.arrays.read(self._memory, item) for item in message.inputs}
        shapes = {item.name: item.shape for item in message.inputs}
        members = [BatchMember(member.id, member.rows, member.parameters) for member in message.members]
        ready = time.perf_counter_ns()
        outputs = runtime.infer(inputs, Batch(members, message.rows, shapes))
        computed = time.perf_counter_ns()
        references = self._write(outputs, message)
        written = time.perf_counter_ns()
        return Executed(message.run_id, references, ready - began, computed - ready, written - computed)

    def _write(self, outputs: object, message: Execute) -> tuple[OutputReference, ...]:
        """Check what the model returned and put it into the segment behind the inputs."""
        given = _by_name(outputs, self._built.outputs)
        offset = message.free_offset
        references = []
        member_rows = [member.rows for member in message.members]
        for name, spec in self._built.outputs.items():
            declared = (message.rows, *spec.shape) if self._built.batched else spec.shape
            payload = self._built.runtime.arrays.payload(spec, declared, given[name])
            _check_shape(name, payload.shape, declared)
            start = payload.place(self._memory, offset)
            if start == offset:
                offset = segments.aligned(offset + payload.size_bytes)
            references.append(
                OutputReference(
                    name, spec.datatype.value, payload.shape, start, payload.size_bytes, _splits(payload, member_rows)
                )
            )
        return tuple(references)


def _by_name(outputs: object, declared: dict[str, TensorSpec]) -> dict[str, object]:
    if not isinstance(outputs, dict):
        raise BrokenContract(f"infer must return a dict of outputs, got {type(outputs).__name__}")
    if outputs.keys() != declared.keys():
        raise BrokenContract(f"infer returned outputs {sorted(map(str, outputs))}, declared are {sorted(declared)}")
    return outputs


def _check_shape(name: str, shape: tuple[int, ...], declared: tuple[int, ...]) -> None:
    """Raises BrokenContract unless the shape is what was declared, with as many rows as went in."""
    fits = len(shape) == len(declared) and all(want in (-1, got) for want, got in zip(declared, shape, strict=True))
    if not fits:
        raise BrokenContract(f"output '{name}': expected shape {list(declared)}, got {list(shape)}")


def _splits(payload: Payload, member_rows: Sequence[int]) -> tuple[int, ...]:
    """Where each member's bytes end."""
    if len(member_rows) == 1:
        return (payload.size_bytes,)
    ends: list[int] = []
    rows = 0
    for count in member_rows:
        rows += count
        ends.append(payload.end_of_row(rows))
    return tuple(ends)
