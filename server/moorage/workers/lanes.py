"""The server's end of one model's lane: a run goes in, its result comes out."""

import mmap
import os
import socket
from collections.abc import Callable, Iterable

import msgspec

from moorage.domain.errors import InferenceFailed, InvalidRequest, MemoryExhausted, MoorageError
from moorage.domain.model import ModelKey
from moorage.domain.request import BatchOutput, InferenceRequest, RunResult
from moorage.domain.tensor import Datatype
from moorage.scheduling.actions import Run
from moorage.scheduling.events import Event, RunFailed, RunFinished
from moorage.workers import segment
from moorage.workers.link import Link
from moorage.workers.messages import Execute, Executed, ExecuteFailed, FromLane, Member, TensorReference

_DECODER: msgspec.msgpack.Decoder[FromLane] = msgspec.msgpack.Decoder(FromLane)


class Lane:
    """One model's way into a worker. At most one run is under way at a time."""

    def __init__(self, key: ModelKey, post: Callable[[Event], None], report: Callable[[str, str], str]) -> None:
        self.key = key
        self._post = post
        self._report = report
        self._link: Link[FromLane] | None = None
        self._memory: mmap.mmap | None = None
        self._used_bytes = 0

    async def open(self, on_close: Callable[[str], None]) -> tuple[socket.socket, int]:
        """Make the lane; the worker's socket and segment descriptor, for the caller to pass on and close."""
        ours, theirs = socket.socketpair()
        descriptor = segment.create()
        self._memory = segment.attach(descriptor)
        self._link = Link(_DECODER, self._received, on_close)
        try:
            await self._link.open(ours)
        except BaseException:  # cancelled: the worker died meanwhile
            ours.close()
            theirs.close()
            os.close(descriptor)
            raise
        return theirs, descriptor

    def close(self) -> None:
        """Give the lane up. Views that are still read keep its memory until they go."""
        if self._link is not None:
            self._link.close()
        self._memory = None

    def execute(self, run: Run) -> None:
        """Copy the inputs in, once, and tell the worker."""
        assert self._link is not None
        assert self._memory is not None
        requests = [entry.request for entry in run.entries]
        try:
            inputs, end = _write_inputs(self._memory, requests)
        except _SegmentFull as error:
            self._post(RunFailed(run.run_id, error.failure))
            return
        members = tuple(Member(request.client_id, request.rows, dict(request.parameters)) for request in requests)
        self._used_bytes = end
        try:
            self._link.send(Execute(run.run_id, run.rows, tuple(inputs), members, end))
        except ValueError as error:  # only ids and parameters, of many members together, can be that long
            self._post(RunFailed(run.run_id, InvalidRequest("parameters", expected="fewer bytes", got=str(error))))

    def trim(self) -> None:
        """The last run's outputs have been read: give back the pages of a large one."""
        if self._memory is not None:
            segment.trim(self._memory, self._used_bytes)

    def _received(self, message: FromLane) -> None:
        if isinstance(message, Executed):
            self._post(RunFinished(message.run_id, self._result(message)))
        else:
            self._post(RunFailed(message.run_id, self._error(message)))

    def _result(self, message: Executed) -> RunResult:
        assert self._memory is not None
        view = memoryview(self._memory)
        outputs = []
        for output in message.outputs:
            end = output.offset + output.size_bytes
            self._used_bytes = max(self._used_bytes, end)
            data = view[output.offset : end]
            outputs.append(BatchOutput(output.name, Datatype(output.datatype), output.shape, data, output.splits))
        return RunResult(tuple(outputs), message.input_ns, message.infer_ns, message.output_ns)

    def _error(self, message: ExecuteFailed) -> MoorageError:
        if message.out_of_memory:
            self._report(self.key.name, message.detail)
            return MemoryExhausted(
                f"a run of model '{self.key.name}'", device="its device", needed_bytes=0, free_bytes=0
            )
        return InferenceFailed(self.key.name, self._report(self.key.name, message.detail), message.detail)


class _SegmentFull(Exception):
    def __init__(self, failure: MoorageError) -> None:
        self.failure = failure


def _write_inputs(memory: mmap.mmap, requests: list[InferenceRequest]) -> tuple[list[TensorReference], int]:
    """Lay each input out over all requests, row after row, so that the worker sees one batch and copies nothing."""
    references: list[TensorReference] = []
    offset = 0
    head = requests[0]
    for index, tensor in enumerate(head.inputs):
        parts: Iterable[bytes | memoryview] = [request.inputs[index].data for request in requests]
        start = offset
        for part in parts:
            end = offset + len(part)
            if end > segment.SEGMENT_BYTES // 2:
                raise _SegmentFull(
                    MemoryExhausted(
                        "a run's inputs",
                        device="shared memory",
                        needed_bytes=end,
                        free_bytes=segment.SEGMENT_BYTES // 2,
                    )
                )
            memory[offset:end] = part
            offset = end
        shape = tensor.shape
        if len(requests) > 1:
            shape = (sum(request.inputs[index].shape[0] for request in requests), *shape[1:])
        references.append(TensorReference(tensor.name, tensor.datatype.value, shape, start, offset - start))
        offset = segment.aligned(offset)
    return references, offset
