"""What every runtime offers, whatever framework is behind it."""

import ctypes
import mmap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from moorage.authoring import Batch, ModelContext, StartingRequest, Step
from moorage.domain.tensor import TensorSpec
from moorage.workers import segment
from moorage.workers.lane_messages import TensorReference

# How frameworks say that memory ran out, where they have no exception of its own for that.
_OUT_OF_MEMORY = (
    "can't allocate memory",  # torch, of a CPU
    "CUDA out of memory",  # torch, where TorchScript made another exception of its own
    "Failed to allocate memory",  # onnxruntime's arena
    "is smaller than requested bytes",  # onnxruntime's arena, at its bound
    "std::bad_alloc",  # onnxruntime, without the arena
    "CUDA failure 2: out of memory",  # onnxruntime
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED",  # as cuDNN says since its version 9
    "CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
)


class BrokenContract(Exception):
    """A model returned something other than it declared. A fault of its author's, told in the log."""


class CannotSuspend(Exception):
    """A state that can't be moved to the host: its request stays where it is, or begins again."""


class LaneFull(MemoryError):
    """Outputs that exceed a lane's memory. More of the device's would not help. size_bytes: what they would take."""

    def __init__(self, size_bytes: int) -> None:
        super().__init__(f"outputs of {size_bytes} bytes exceed the lane's {segment.SEGMENT_BYTES}")
        self.size_bytes = size_bytes


@dataclass(frozen=True, slots=True)
class RuntimeOptions:
    """What model.toml says that a runtime needs.

    batched: tensors carry a batch axis in front. decoupled: see ModelSpec.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    batched: bool
    load_s: float = 0.0
    run_s: float = 0.0
    run_s_per_row: float = 0.0
    declared_weights_bytes: int = 0
    restore_s: float = 0.0
    steps: int = 1
    state_bytes: int = 0
    instances: int = 1
    decoupled: bool = False


def refuse_ragged(options: RuntimeOptions, runtime: str) -> None:
    """Raises BrokenContract where an input is to come as a list: what such a model takes are tensors."""
    for spec in options.inputs:
        if spec.ragged:
            raise BrokenContract(
                f"input '{spec.name}': ragged is not supported by runtime = '{runtime}', which takes tensors: "
                "use padding, or runtime = 'python'"
            )


def refuse_what_steps_cannot(options: RuntimeOptions) -> None:
    """Raises BrokenContract where a stepped model declares what is for models that compute a batch at once.

    It gets the inputs of requests one by one, and takes one step at a time over all of them.
    """
    if options.instances > 1:
        raise BrokenContract(
            f"instances: expected 1 of a stepped model, which takes one step at a time over all its requests, "
            f"got {options.instances}"
        )
    for spec in options.inputs:
        if spec.varies:
            raise BrokenContract(
                f"input '{spec.name}': ragged and padding are for models that compute a batch at once; a stepped model "
                "starts each request by itself, whatever the others' shapes are"
            )


class SharedMemory:
    """A lane's segment, mapped. address: where it begins in this process."""

    def __init__(self, memory: mmap.mmap) -> None:
        self.memory = memory
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(memory))

    def reserve(self, offset: int, size_bytes: int) -> None:
        """Raises LaneFull if that many bytes from offset on go past the end."""
        if offset + size_bytes > segment.SEGMENT_BYTES:
            raise LaneFull(offset + size_bytes)


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
        """An input as the model gets it; a list of bytes for BYTES; a list of these of a ragged one."""
        ...

    def payload(self, spec: TensorSpec, shape: tuple[int, ...], value: Any) -> Payload:
        """An output as the model gave it. shape: as declared, with the batch axis and -1 for any size.

        Raises BrokenContract if it is not of the declared datatype.
        """
        ...


class States(Protocol):
    """What a stepped model keeps of the requests that it works on, by their ids. Called from one thread.

    Anything may be raised. A request whose start fails has no state; of any other, the caller drops it.

    method: of the author's, that gives the outputs.
    """

    method: str

    def start(self, request_id: int, inputs: Mapping[str, Any], request: StartingRequest) -> None:
        """Begin a request. inputs: as Arrays.read gives them, which need not last."""
        ...

    def step(self, request_ids: Sequence[int]) -> Sequence[Step]:
        """One step of all these requests; as many steps come back, in the same order."""
        ...

    def state_bytes(self, request_id: int) -> int:
        """Bytes of the device that a request keeps."""
        ...

    def suspend(self, request_id: int) -> None:
        """Move a state to the host. Does nothing to one that is there."""
        ...

    def resume(self, request_id: int) -> None:
        """Bring a state back. Does nothing to one that is on the device."""
        ...

    def drop(self, request_id: int) -> None:
        """Forget a state, wherever it is, if there is one. Raises nothing."""
        ...


class Runtime(Protocol):
    """One model in one framework. All calls come from the worker's threads: of infer as many at once as the model has
    instances, of the others one at a time, and only while no infer is under way.

    states: of a stepped model, once it is loaded; such a model has no infer. None for any other.
    """

    @property
    def arrays(self) -> Arrays: ...

    @property
    def states(self) -> States | None: ...

    @property
    def stepped(self) -> bool:
        """Whether the loaded model computes in steps."""
        ...

    def load(self, context: ModelContext) -> None:
        """Bring the model to the context's device. Raises anything."""
        ...

    def infer(self, inputs: Mapping[str, Any], batch: Batch) -> Mapping[str, Any]:
        """Compute one run. Raises anything."""
        ...

    def weights_bytes(self) -> int:
        """Bytes of device memory that the loaded model holds between runs, measured."""
        ...

    @property
    def can_offload(self) -> bool:
        """Whether the loaded model's weights can be moved to the host and back."""
        ...

    def offload(self) -> int:
        """Move the weights to the host, between runs; the bytes that they take there.

        Raises anything, and then the model is as it was.
        """
        ...

    def restore(self) -> None:
        """Undo offload. Raises anything, and then the model is good for nothing."""
        ...

    def unload(self) -> None:
        """Let the model clean up, and drop it."""
        ...

    def retained_bytes(self) -> int:
        """Bytes of device memory, of those that the model ever held, that are not free after offload or unload."""
        ...


def is_loss_of_device(error: BaseException) -> bool:
    """Whether a framework says that the accelerator failed. This process may then be unable to use it ever again."""
    return any(kind.__name__ == "AcceleratorError" for kind in type(error).__mro__)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception means that memory ran out, in any of the ways that frameworks say so."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    if not isinstance(error, RuntimeError) and not _is_of_onnxruntime(error):
        return False
    texts = [part for part in error.args if isinstance(part, str)]
    return any(words in text for text in texts for words in _OUT_OF_MEMORY)


def _is_of_onnxruntime(error: BaseException) -> bool:
    """By name, as it may not be installed. Its exceptions are of no other kind that could be told apart."""
    return any(kind.__module__.partition(".")[0] == "onnxruntime" for kind in type(error).__mro__)
