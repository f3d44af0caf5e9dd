"""The requests of a stepped model on its lane: begun, moved on together, suspended, dropped."""

import time
import traceback
from collections.abc import Sequence

from moorage.authoring import StartingRequest, Step
from moorage.workers.child.building import Built
from moorage.workers.child.failures import failure_of, let_go
from moorage.workers.child.gauges import LaneGauge, peak_of
from moorage.workers.child.memory import release_freed_memory, release_what_failed, wait_for_stream
from moorage.workers.child.outputs import OutputWriter
from moorage.workers.lane_messages import (
    Dropped,
    ExecuteFailed,
    ExecuteStep,
    OutputReference,
    StartingMember,
    Stepped,
    SteppedMember,
    Suspended,
)
from moorage.workers.runtimes import BrokenContract, CannotSuspend, SharedMemory, States, is_loss_of_device

# So many steps of a warm-up's request, at most: later ones differ little, and may be many.
WARMUP_STEPS = 32


class Stepping:
    """Does with a model's states what the server asks. Whatever fails, its states are gone before that is said."""

    def __init__(
        self, built: Built, states: States, memory: SharedMemory, outputs: OutputWriter, gauge: LaneGauge
    ) -> None:
        self._device = built.device
        self._decoupled = built.decoupled
        self._states = states
        self._arrays = built.runtime.arrays
        self._memory = memory
        self._outputs = outputs
        self._gauge = gauge
        self._rows: dict[int, int] = {}
        self.device_is_lost = False

    def execute(self, message: ExecuteStep) -> Stepped | ExecuteFailed:
        try:
            return self._compute(message)
        except BaseException as error:  # a model may raise anything, SystemExit too
            self.device_is_lost |= is_loss_of_device(error)
            failed = ExecuteFailed(message.run_id, failure_of(error))
            let_go(error)
        self._forget(message.stepping)
        release_freed_memory(self._device)
        return failed

    def suspend(self, request_ids: Sequence[int]) -> list[Suspended | Dropped]:
        """Move states to the host. One that can't be moved is dropped, as its memory is wanted all the same."""
        moved: list[int] = []
        for request_id in request_ids:
            try:
                self._states.suspend(request_id)
                moved.append(request_id)
            except CannotSuspend:
                continue
            except BaseException:  # as above
                traceback.print_exc()
        lost = tuple(request_id for request_id in request_ids if request_id not in moved)
        self._forget(lost)
        release_freed_memory(self._device)
        suspended: list[Suspended | Dropped] = [Suspended(tuple(moved))] if moved else []
        return [*suspended, Dropped(lost)] if lost else suspended

    def drop(self, request_ids: tuple[int, ...]) -> Dropped:
        self._forget(request_ids)
        release_freed_memory(self._device)
        return Dropped(request_ids)

    def rehearse(self, member: StartingMember, free_offset: int) -> None:
        """Work on one request by itself, until it is done or has had WARMUP_STEPS, and keep nothing of it.

        Raises whatever the model raises, and BrokenContract where its steps or outputs are not what was declared.
        """
        request_id = member.request_id
        try:
            self._begin(member, self._read(member))
            for _ in range(WARMUP_STEPS):
                (step,) = self._step((request_id,))
                wait_for_stream(self._device)
                self._outputs.free_offset = free_offset
                if self._result(request_id, step).done:
                    return
        finally:
            self._forget((request_id,))

    def _read(self, member: StartingMember) -> dict[str, object]:
        return {item.name: self._arrays.read(self._memory, item) for item in member.inputs}

    def _compute(self, message: ExecuteStep) -> Stepped:
        began = time.perf_counter_ns()
        inputs = [self._read(member) for member in message.starting]
        ready = time.perf_counter_ns()
        results = {}
        for member, given in zip(message.starting, inputs, strict=True):
            failure = self._start(member, given)
            if failure is not None:
                results[member.request_id] = failure
        for request_id in message.resuming:
            self._states.resume(request_id)
        going = [request_id for request_id in message.stepping if request_id not in results]
        rows = sum(self._rows[request_id] for request_id in going)
        steps, taken = self._gauge.run(rows, 0, lambda: self._step(going))
        computed = time.perf_counter_ns()
        self._outputs.free_offset = message.free_offset
        results |= {request_id: self._settle(request_id, step) for request_id, step in zip(going, steps, strict=True)}
        written = time.perf_counter_ns()
        in_order = tuple(results[request_id] for request_id in message.stepping)
        times = (ready - began, computed - ready, written - computed)
        # What failed at its start took no part.
        whole = taken if len(going) == len(message.stepping) else None
        return Stepped(message.run_id, in_order, *times, *peak_of(whole))

    def _start(self, member: StartingMember, inputs: dict[str, object]) -> SteppedMember | None:
        """Begin one request; how that failed, where it did."""
        try:
            self._begin(member, inputs)
        except BaseException as error:  # as above
            return self._failed(member.request_id, error)
        return None

    def _begin(self, member: StartingMember, inputs: dict[str, object]) -> None:
        shapes = {item.name: item.shape for item in member.inputs}
        self._rows[member.request_id] = member.rows
        request = StartingRequest(member.id, member.rows, member.parameters, shapes)
        self._states.start(member.request_id, inputs, request)

    def _step(self, request_ids: Sequence[int]) -> Sequence[Step]:
        """Raises BrokenContract unless there is a Step for each."""
        if not request_ids:
            return ()
        steps = self._states.step(request_ids)
        if not isinstance(steps, list | tuple) or not all(isinstance(step, Step) for step in steps):
            raise BrokenContract(f"step must return a list of Steps, got {_kinds(steps)}")
        if len(steps) != len(request_ids):
            raise BrokenContract(f"step returned {len(steps)} Steps for {len(request_ids)} states")
        wait_for_stream(self._device)
        return steps

    def _settle(self, request_id: int, step: Step) -> SteppedMember:
        try:
            result = self._result(request_id, step)
        except BaseException as error:  # as above
            return self._failed(request_id, error)
        if result.done:
            self._forget((request_id,))
        return result

    def _result(self, request_id: int, step: Step) -> SteppedMember:
        """What the step did for a request. Raises BrokenContract unless its outputs are what was declared."""
        if step.error is not None:
            raise step.error
        is_due = self._decoupled or step.done
        if step.done and step.outputs is None and not self._decoupled:
            raise BrokenContract("step returned a Step with done=True and no outputs")
        rows = (self._rows[request_id],)
        written: tuple[OutputReference, ...] = ()
        if is_due and step.outputs is not None:
            written = self._outputs.write(self._states.method, step.outputs, rows)
        state_bytes = 0 if step.done else self._states.state_bytes(request_id)
        return SteppedMember(request_id, step.done, state_bytes, written)

    def _failed(self, request_id: int, error: BaseException) -> SteppedMember:
        self.device_is_lost |= is_loss_of_device(error)
        self._forget((request_id,))
        failure = failure_of(error)
        let_go(error)
        if failure.out_of_memory:
            release_what_failed(self._device)
        return SteppedMember(request_id, False, 0, failure=failure)

    def _forget(self, request_ids: Sequence[int]) -> None:
        for request_id in request_ids:
            self._rows.pop(request_id, None)
            self._states.drop(request_id)


def _kinds(steps: object) -> str:
    if not isinstance(steps, list | tuple):
        return type(steps).__name__
    return f"{type(steps).__name__} of {', '.join(sorted({type(step).__name__ for step in steps}))}"
