"""The server's end of a lane: what can't be sent of a step costs no other member its state."""

import asyncio
import os
import socket

import msgspec
import pytest

from moorage.domain.errors import InvalidRequest, MemoryExhausted
from moorage.domain.request import InferenceRequest, StepResult
from moorage.domain.tensor import Datatype, InputTensor
from moorage.scheduling.actions import Run, StepPlan
from moorage.scheduling.budget import Lease, LeaseKind
from moorage.scheduling.entries import Entry
from moorage.scheduling.events import Event, StepFinished
from moorage.workers import framing, segment
from moorage.workers.lane_messages import ExecuteStep, FromLane, Stepped, SteppedMember
from moorage.workers.lanes import Lane
from tests.support.scheduling import MODEL

SEGMENT_BYTES = 64 * 1024
TOO_MUCH = SEGMENT_BYTES // 2 + 1


@pytest.fixture(autouse=True)
def _small_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment, "SEGMENT_BYTES", SEGMENT_BYTES)


def request(request_id: int, size_bytes: int, note: str = "") -> Entry:
    tensor = InputTensor("x", Datatype.UINT8, (1, size_bytes), bytes([request_id]) * size_bytes)
    parameters = {"note": note} if note else {}
    return Entry(InferenceRequest(request_id, "", MODEL, (tensor,), 1, size_bytes, 0.0, 1000.0, parameters=parameters))


def step_of(resuming: list[Entry], starting: list[Entry]) -> Run:
    lease = Lease("cpu", str(MODEL), LeaseKind.WORKSPACE, 0)
    members = (*resuming, *starting)
    return Run(9, MODEL, "cpu", members, len(members), lease, 0.0, StepPlan(tuple(starting), tuple(resuming)))


class Worker:
    """The other end of a lane, which does what it is told at once."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._end.setblocking(False)
        self.told: list[ExecuteStep] = []

    async def answer(self) -> None:
        data = await asyncio.get_running_loop().sock_recv(self._end, 65536)
        message = msgspec.msgpack.decode(data[framing.HEADER_BYTES :], type=ExecuteStep)
        self.told.append(message)
        answer: FromLane = Stepped(
            message.run_id, tuple(SteppedMember(member, False, 5) for member in message.stepping), 1, 1, 1
        )
        await asyncio.get_running_loop().sock_sendall(self._end, framing.frame(msgspec.msgpack.encode(answer)))


async def carried_out(run: Run, *, sent: bool = True) -> tuple[StepFinished, list[ExecuteStep]]:
    """What a step came to, and what the worker was told."""
    events: asyncio.Queue[Event] = asyncio.Queue()
    lane = Lane(MODEL, events.put_nowait, lambda model, detail: "id")
    end, descriptor = await lane.open(pytest.fail)
    os.close(descriptor)
    worker = Worker(end)
    lane.execute(run, after_cap=3)
    if sent:
        await asyncio.wait_for(worker.answer(), 5)
    event = await asyncio.wait_for(events.get(), 5)
    lane.close()
    end.close()
    assert isinstance(event, StepFinished)
    return event, worker.told


def by_request(event: StepFinished) -> dict[int, StepResult]:
    return {result.request_id: result for result in event.results}


def test_only_those_that_start_bring_inputs_each_its_own() -> None:
    run = step_of([request(1, 10)], [request(2, 100), request(3, 7)])
    event, (told,) = asyncio.run(carried_out(run))
    assert by_request(event).keys() == {1, 2, 3}
    assert (told.resuming, told.after_cap) == ((1,), 3)
    assert told.stepping == (1, 2, 3)
    assert [(member.request_id, member.inputs[0].shape) for member in told.starting] == [(2, (1, 100)), (3, (1, 7))]
    first, second = (member.inputs[0] for member in told.starting)
    assert first.offset + first.size_bytes <= second.offset
    assert second.offset + second.size_bytes <= told.free_offset


def test_inputs_that_do_not_fit_are_refused_to_their_request_alone() -> None:
    run = step_of([request(1, 10)], [request(2, TOO_MUCH), request(3, 7)])
    event, (told,) = asyncio.run(carried_out(run))
    results = by_request(event)
    assert isinstance(results[2].error, MemoryExhausted)
    assert told.stepping == (1, 3)
    assert results[1] == StepResult(1, False, 5)
    assert results[3] == StepResult(3, False, 5)


def test_a_step_of_which_nothing_can_be_sent_is_answered_here() -> None:
    event, told = asyncio.run(carried_out(step_of([], [request(2, TOO_MUCH)]), sent=False))
    assert told == []
    assert isinstance(by_request(event)[2].error, MemoryExhausted)


def test_parameters_that_no_message_holds_are_refused_to_those_that_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framing, "MAX_MESSAGE_BYTES", 1000)
    event, (told,) = asyncio.run(carried_out(step_of([request(1, 10)], [request(2, 10, note="n" * 1000)])))
    results = by_request(event)
    assert isinstance(results[2].error, InvalidRequest)
    assert told.starting == ()
    assert told.stepping == (1,)
    assert results[1].error is None
