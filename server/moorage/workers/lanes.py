"""The server's end of one lane of a model: a run or a step goes in, its result comes out."""

import mmap
import os
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from moorage.domain.errors import (
    ContractBroken,
    DeviceLost,
    InferenceFailed,
    InputRefused,
    InvalidRequest,
    MemoryExhausted,
    MoorageError,
    OutOfMemory,
)
from moorage.domain.model import ModelKey
from moorage.domain.request import BatchOutput, InferenceRequest, RunResult, StepResult
from moorage.domain.tensor import Datatype, Element, TensorSpec
from moorage.scheduling.actions import Run, StepPlan
from moorage.scheduling.events import Event, RunFailed, RunFinished, StatesDropped, StatesSuspended, StepFinished
from moorage.workers import segment
from moorage.workers.lane_messages import (
    Dropped,
    DropStates,
    Execute,
    Executed,
    ExecuteFailed,
    ExecuteStep,
    Failure,
    FromLane,
    Member,
    OutputReference,
    StartingMember,
    Stepped,
    SteppedMember,
    Suspended,
    SuspendStates,
    TensorReference,
)
from moorage.workers.link import Link

_DECODER: msgspec.msgpack.Decoder[FromLane] = msgspec.msgpack.Decoder(FromLane)

_Shape = tuple[int, ...]


class Lane:
    """The way into a worker of one of a model's instances. At most one run is under way at a time.

    inputs: as the model declares them.
    """

    def __init__(
        self,
        key: ModelKey,
        post: Callable[[Event], None],
        report: Callable[[str, str], str],
        inputs: Iterable[TensorSpec] = (),
    ) -> None:
        self.key = key
        self._varying = {spec.name: spec for spec in inputs if spec.varies}
        self._post = post
        self._report = report
        self._link: Link[FromLane] | None = None
        self._memory: mmap.mmap | None = None
        self._used_bytes = 0
        self._after_cap = 0
        # Members of the step under way that never reached the worker.
        self._refused: tuple[StepResult, ...] = ()

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

    def execute(self, run: Run, after_cap: int = 0) -> None:
        """Copy the inputs in, once, and tell the worker. Of a step, only the members that start bring inputs.

        after_cap: the last SetCap that was sent to the worker, which comes by another way.
        """
        self._after_cap = after_cap
        if run.step is None:
            self._execute(run)
        else:
            self._execute_step(run, run.step)

    def suspend(self, request_ids: tuple[int, ...]) -> None:
        """Have states moved to the host."""
        self._send(SuspendStates(request_ids))

    def drop(self, request_ids: tuple[int, ...]) -> None:
        """Have states given up."""
        self._send(DropStates(request_ids))

    def _send(self, message: msgspec.Struct) -> None:
        assert self._link is not None
        self._link.send(message)

    def _execute(self, run: Run) -> None:
        assert self._memory is not None
        requests = [entry.request for entry in run.entries]
        try:
            inputs, end = _write_inputs(self._memory, requests, 0, self._varying)
        except _SegmentFull as error:
            self._post(RunFailed(run.run_id, error.failure))
            return
        members = tuple(Member(request.client_id, request.rows, dict(request.parameters)) for request in requests)
        self._used_bytes = end
        try:
            self._send(Execute(run.run_id, run.rows, tuple(inputs), members, end, self._after_cap))
        except ValueError as error:  # only ids and parameters, of many members together, can be that long
            self._post(RunFailed(run.run_id, InvalidRequest("parameters", expected="fewer bytes", got=str(error))))

    def _execute_step(self, run: Run, plan: StepPlan) -> None:
        """What can't be sent is refused to that member alone: the others have states that a failed run would lose."""
        starting, self._refused = self._write_starting(plan)
        try:
            self._send_step(run, plan, starting)
        except ValueError as error:  # as above
            failure = InvalidRequest("parameters", expected="fewer bytes", got=str(error))
            self._refused += tuple(StepResult(member.request_id, False, 0, error=failure) for member in starting)
            self._send_step(run, plan, ())

    def _write_starting(self, plan: StepPlan) -> tuple[tuple[StartingMember, ...], tuple[StepResult, ...]]:
        """Each member's inputs on their own; those that there is room for, and the others."""
        assert self._memory is not None
        starting: list[StartingMember] = []
        refused: list[StepResult] = []
        self._used_bytes = 0
        for request in (entry.request for entry in plan.starting):
            try:
                inputs, self._used_bytes = _write_inputs(self._memory, [request], self._used_bytes, {})
            except _SegmentFull as full:
                refused.append(StepResult(request.request_id, False, 0, error=full.failure))
                continue
            starting.append(_starting(request, tuple(inputs)))
        return tuple(starting), tuple(refused)

    def _send_step(self, run: Run, plan: StepPlan, starting: tuple[StartingMember, ...]) -> None:
        refused = {result.request_id for result in self._refused}
        members = (entry.request.request_id for entry in run.entries)
        stepping = tuple(request_id for request_id in members if request_id not in refused)
        if not stepping:
            self._post(StepFinished(run.run_id, self._refused))
            return
        resuming = tuple(entry.request.request_id for entry in plan.resuming)
        self._send(ExecuteStep(run.run_id, starting, resuming, stepping, self._used_bytes, self._after_cap))

    def trim(self) -> None:
        """The last run's outputs have been read: give back the pages of a large one."""
        if self._memory is not None:
            segment.trim(self._memory, self._used_bytes)

    def _received(self, message: FromLane) -> None:
        match message:
            case Executed():
                self._post(RunFinished(message.run_id, self._result(message)))
            case ExecuteFailed():
                self._post(RunFailed(message.run_id, self._error(message.failure)))
            case Stepped():
                results = tuple(map(self._step_result, message.results))
                # Those who never got there were counted on.
                peak_bytes = None if self._refused else message.peak_bytes
                self._post(StepFinished(message.run_id, results + self._refused, peak_bytes))
            case Suspended():
                self._post(StatesSuspended(self.key, message.request_ids))
            case Dropped():
                self._post(StatesDropped(self.key, message.request_ids))

    def _result(self, message: Executed) -> RunResult:
        times = (message.input_ns, message.infer_ns, message.output_ns)
        return RunResult(self._outputs(message.outputs), *times, message.peak_bytes, message.reserved_bytes)

    def _step_result(self, member: SteppedMember) -> StepResult:
        error = None if member.failure is None else self._error(member.failure)
        outputs = self._outputs(member.outputs)
        return StepResult(member.request_id, member.done, member.state_bytes, outputs, error)

    def _outputs(self, references: Sequence[OutputReference]) -> tuple[BatchOutput, ...]:
        """Views of the lane's memory."""
        assert self._memory is not None
        view = memoryview(self._memory)
        outputs = []
        for output in references:
            end = output.offset + output.size_bytes
            self._used_bytes = max(self._used_bytes, end)
            data = view[output.offset : end]
            outputs.append(BatchOutput(output.name, Datatype(output.datatype), output.shape, data, output.splits))
        return tuple(outputs)

    def _error(self, failure: Failure) -> MoorageError:
        """What callers are told. The log has all of it, but for what is a caller's own fault."""
        name = self.key.name
        if failure.invalid_input:
            return InputRefused(name, failure.invalid_input)
        error_id = self._report(name, failure.detail)
        if failure.lane_bytes:
            what, room_bytes = f"outputs of a run of model '{name}'", segment.SEGMENT_BYTES
            return MemoryExhausted(what, device="shared memory", needed_bytes=failure.lane_bytes, free_bytes=room_bytes)
        if failure.out_of_memory:
            return OutOfMemory(f"a run of model '{name}'")
        if failure.broken_contract:
            return ContractBroken(name, error_id, failure.broken_contract)
        if failure.device_lost:
            return DeviceLost(name, error_id, failure.detail)
        return InferenceFailed(name, error_id, failure.detail)


def _starting(request: InferenceRequest, inputs: tuple[TensorReference, ...]) -> StartingMember:
    return StartingMember(request.request_id, request.client_id, request.rows, dict(request.parameters), inputs)


class _SegmentFull(Exception):
    def __init__(self, failure: MoorageError) -> None:
        self.failure = failure


def _write_inputs(
    memory: mmap.mmap, requests: list[InferenceRequest], offset: int, varying: Mapping[str, TensorSpec]
) -> tuple[list[TensorReference], int]:
    """Lay each input out over all requests, row after row, so that the worker sees one batch and copies nothing.

    varying: those inputs of which the requests' tensors may differ; they stand there likewise, as they are.
    Returns where each is, and where the memory is free after them. Raises _SegmentFull.
    """
    references: list[TensorReference] = []
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
        layout = _layout(varying.get(tensor.name), [request.inputs[index].shape for request in requests])
        references.append(
            TensorReference(tensor.name, tensor.datatype.value, layout.shape, start, offset - start, *layout[1:])
        )
        offset = segment.aligned(offset)
    return references, offset


class _Layout(NamedTuple):
    """What a TensorReference says of how the requests' tensors become one input."""

    shape: _Shape
    parts: tuple[_Shape, ...] = ()
    padding: Element | None = None


def _layout(varying: TensorSpec | None, shapes: Sequence[_Shape]) -> _Layout:
    """shapes: of the requests' tensors, which differ only in rows, unless the input is one that may vary."""
    first = shapes[0]
    if varying is None and len(shapes) == 1:  # the only one that may have no rows
        return _Layout(first)
    rows = sum([shape[0] for shape in shapes])
    if varying is None:
        return _Layout((rows, *first[1:]))
    if varying.ragged:
        return _Layout((rows, *varying.shape), tuple(shapes))
    largest = tuple([max(sizes) for sizes in zip(*[shape[1:] for shape in shapes], strict=True)])
    if all(shape[1:] == largest for shape in shapes):
        return _Layout((rows, *largest))
    return _Layout((rows, *largest), tuple(shapes), varying.padding)
