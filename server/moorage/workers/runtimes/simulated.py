"""runtime = "simulated": takes the time that a table says and returns zeros.

The same process and the same messages as any other model, so nothing above can tell it from one; and no framework
is imported, so it starts at once.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from moorage.authoring import Batch, ModelContext
from moorage.domain.tensor import TensorSpec, element_count
from moorage.workers.messages import TensorReference
from moorage.workers.runtimes.base import Payload, Runtime, RuntimeOptions, SharedMemory


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
    """Sleeps for load_s, then for run_s + rows * run_s_per_row at every run. A free dimension counts as one."""

    def __init__(self, options: RuntimeOptions) -> None:
        self.arrays = NoArrays()
        self._options = options

    def load(self, context: ModelContext) -> None:
        time.sleep(self._options.load_s)

    def infer(self, inputs: Mapping[str, Any], batch: Batch) -> Mapping[str, Any]:
        time.sleep(self._options.run_s + batch.rows * self._options.run_s_per_row)
        rows = (batch.rows,) if self._options.batched else ()
        return {
            spec.name: (*rows, *(max(1, size) if size < 0 else size for size in spec.shape))
            for spec in self._options.outputs
        }

    def weights_bytes(self) -> int:
        return self._options.declared_weights_bytes

    def unload(self) -> None:
        return None


def create(options: RuntimeOptions) -> Runtime:
    """A runtime for one model."""
    return SimulatedRuntime(options)
