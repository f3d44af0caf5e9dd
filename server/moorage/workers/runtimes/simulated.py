"""runtime = "simulated": takes the time that a table says and returns zeros.

The same process and the same messages as any other model, so nothing above can tell it from one; and no framework
is imported, so it starts at once.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from moorage.authoring import Batch, ModelContext, StartingRequest, Step
from moorage.domain.tensor import TensorSpec, element_count
from moorage.workers.lane_messages import TensorReference
from moorage.workers.runtimes.base import Payload, Runtime, RuntimeOptions, SharedMemory, refuse_what_steps_cannot


@dataclass(frozen=True, slots=True)
class ZeroPayload:
    """Zeros of a shape; for BYTES, empty elements, whose encoding is zeros too."""

    shape: tuple[int, ...]
    item_bytes: int

    @property
    def size_bytes(self) -> int:
        return element_count(self.shape) * self.item_bytes

    def place(self, memory: SharedMemory, offset: int) -> int:
        memory.reserve(offset, self.size_bytes)
        memory.memory[offset : offset + self.size_bytes] = bytes(self.size_bytes)
        return offset

    def end_of_row(self, rows: int) -> int:
        return rows * element_count(self.shape[1:]) * self.item_bytes


class NoArrays:
    """Inputs are not read; outputs are shapes."""

    def read(self, memory: SharedMemory, reference: TensorReference) -> None:
        return None

    def payload(self, spec: TensorSpec, shape: tuple[int, ...], value: Any) -> Payload:
        return ZeroPayload(value, spec.datatype.item_bytes)


class SimulatedRuntime:
    """Sleeps for load_s, then for run_s + rows * run_s_per_row at every run or step. A free dimension counts as one.

    Its weights leave and come back in restore_s each.
    """

    def __init__(self, options: RuntimeOptions) -> None:
        if options.steps > 1:
            refuse_what_steps_cannot(options)
        self.arrays = NoArrays()
        self.states = SimulatedStates(options) if options.steps > 1 else None
        self.stepped = self.states is not None
        self.can_offload = options.declared_weights_bytes > 0
        self._options = options

    def load(self, context: ModelContext) -> None:
        time.sleep(self._options.load_s)

    def infer(self, inputs: Mapping[str, Any], batch: Batch) -> Mapping[str, Any]:
        return _run(self._options, batch.rows)

    def weights_bytes(self) -> int:
        return self._options.declared_weights_bytes

    def offload(self) -> int:
        time.sleep(self._options.restore_s)
        return self._options.declared_weights_bytes

    def restore(self) -> None:
        time.sleep(self._options.restore_s)

    def unload(self) -> None:
        return None

    def retained_bytes(self) -> int:
        return 0


@dataclass(slots=True)
class _Progress:
    rows: int
    steps_left: int
    state_bytes: int


class SimulatedStates:
    """How many steps each request still has to go. Suspending and resuming take no time."""

    method = "step"

    def __init__(self, options: RuntimeOptions) -> None:
        self._options = options
        self._requests: dict[int, _Progress] = {}

    def start(self, request_id: int, inputs: Mapping[str, Any], request: StartingRequest) -> None:
        self._requests[request_id] = _Progress(request.rows, self._options.steps, self._options.state_bytes)

    def step(self, request_ids: Sequence[int]) -> Sequence[Step]:
        requests = [self._requests[request_id] for request_id in request_ids]
        _run(self._options, sum(request.rows for request in requests))
        return [self._step(request) for request in requests]

    def _step(self, request: _Progress) -> Step:
        request.steps_left -= 1
        done = request.steps_left == 0
        is_due = done or self._options.decoupled
        return Step(_zeros(self._options, request.rows) if is_due else None, done)

    def state_bytes(self, request_id: int) -> int:
        return self._requests[request_id].state_bytes

    def suspend(self, request_id: int) -> None:
        return None

    def resume(self, request_id: int) -> None:
        return None

    def drop(self, request_id: int) -> None:
        self._requests.pop(request_id, None)


def _run(options: RuntimeOptions, rows: int) -> Mapping[str, Any]:
    time.sleep(options.run_s + rows * options.run_s_per_row)
    return _zeros(options, rows)


def _zeros(options: RuntimeOptions, rows: int) -> Mapping[str, Any]:
    """Every output by its shape alone."""
    axis = (rows,) if options.batched else ()
    return {
        spec.name: (*axis, *(max(1, size) if size < 0 else size for size in spec.shape)) for spec in options.outputs
    }


def create(options: RuntimeOptions) -> Runtime:
    """A runtime for one model."""
    return SimulatedRuntime(options)
