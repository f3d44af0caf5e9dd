"""What every runtime offers, whatever framework is behind it."""

import ctypes
import mmap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from moorage.authoring import Batch, ModelContext
from moorage.domain.tensor import TensorSpec
from moorage.workers import segment
from moorage.workers.messages import TensorReference


class BrokenContract(Exception):
    """A model returned something other than it declared. A fault of its author's, told in the log."""


@dataclass(frozen=True, slots=True)
class RuntimeOptions:
    """What model.toml says that a runtime needs. batched: tensors carry a batch axis in front."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    batched: bool
    load_s: float = 0.0
    run_s: float = 0.0
    run_s_per_row: float = 0.0
    declared_weights_bytes: int = 0


class SharedMemory:
    """A lane's segment, mapped. address: where it begins in this process."""

    def __init__(self, memory: mmap.mmap) -> None:
        self.memory = memory
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(memory))

    def reserve(self, offset: int, size_bytes: int) -> None:
        """Raises MemoryError if that many bytes from offset on go past the end."""
        if offset + size_bytes > segment.SEGMENT_BYTES:
            raise MemoryError(f"outputs of {offset + size_bytes} bytes exceed the lane's {segment.SEGMENT_BYTES}")


class Payload(Protocol):
    """One output, ready to be put where the server reads it.

    shape: with the batch axis. size_bytes: in the protocol's layout.
    """

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def size_bytes(self) -> int: ...

    def place(self, memory: SharedMemory, offset: int) -> int:
        """Put the bytes at offset, or find that they are in the segment already; where they are now."""
        ...

    def end_of_row(self, rows: int) -> int:
        """Bytes that the first `rows` rows take."""
        ...


class Arrays(Protocol):
    """How a framework's arrays come out of shared memory and go into it."""

    def read(self, memory: SharedMemory, reference: TensorReference) -> Any:
        """An input as the model gets it; a list of bytes for BYTES."""
        ...

    def payload(self, spec: TensorSpec, shape: tuple[int, ...], value: Any) -> Payload:
        """An output as the model gave it. shape: as declared, with the batch axis and -1 for any size.

        Raises BrokenContract if it is not of the declared datatype.
        """
        ...


class Runtime(Protocol):
    """One model in one framework. All calls come from the worker's threads, one at a time for a model's infer."""

    @property
    def arrays(self) -> Arrays: ...

    def load(self, context: ModelContext) -> None:
        """Bring the model to the context's device. Raises anything."""
        ...

    def infer(self, inputs: Mapping[str, Any], batch: Batch) -> Mapping[str, Any]:
        """Compute one run. Raises anything."""
        ...

    def weights_bytes(self) -> int:
        """Bytes of device memory that the loaded model holds between runs, measured."""
        ...

    def unload(self) -> None:
        """Let the model clean up, and drop it."""
        ...


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception means that memory ran out, in any of the ways that frameworks say so."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError) and any("can't allocate memory" in str(part) for part in error.args)
