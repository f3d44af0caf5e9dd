"""runtime = "onnx": model.onnx, through onnxruntime."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from moorage.authoring import Batch, ModelContext
from moorage.domain.tensor import Datatype, TensorSpec, element_count
from moorage.workers.lane_messages import TensorReference
from moorage.workers.runtimes.base import (
    BrokenContract,
    Payload,
    Runtime,
    RuntimeOptions,
    SharedMemory,
    refuse_ragged,
)
from moorage.workers.runtimes.bytes_tensors import bytes_payload, read_bytes
from moorage.workers.runtimes.parts import element_counts, places

_DTYPES: dict[Datatype, Any] = {
    Datatype.BOOL: np.bool_,
    Datatype.UINT8: np.uint8,
    Datatype.UINT16: np.uint16,
    Datatype.UINT32: np.uint32,
    Datatype.UINT64: np.uint64,
    Datatype.INT8: np.int8,
    Datatype.INT16: np.int16,
    Datatype.INT32: np.int32,
    Datatype.INT64: np.int64,
    Datatype.FP16: np.float16,
    Datatype.FP32: np.float32,
    Datatype.FP64: np.float64,
}


class NumpyArrays:
    """Inputs are views of the segment, or padded copies."""

    def read(self, memory: SharedMemory, reference: TensorReference) -> Any:
        if reference.datatype == Datatype.BYTES.value:
            return np.array(read_bytes(memory, reference), dtype=object).reshape(reference.shape)
        dtype = _DTYPES[Datatype(reference.datatype)]
        count = sum(element_counts(reference.parts or (reference.shape,)))
        flat = np.frombuffer(memory.memory, dtype, count, reference.offset)
        return _padded(flat, reference) if reference.parts else flat.reshape(reference.shape)

    def payload(self, spec: TensorSpec, shape: tuple[int, ...], value: Any) -> Payload:
        if spec.datatype is Datatype.BYTES:
            return bytes_payload(spec.name, value, shape)
        if value.dtype != _DTYPES[spec.datatype]:
            raise BrokenContract(f"output '{spec.name}': expected {spec.datatype}, got {value.dtype}")
        return NumpyPayload(np.ascontiguousarray(value), value.shape)


def _padded(flat: np.ndarray[Any, Any], reference: TensorReference) -> np.ndarray[Any, Any]:
    padded = np.full(reference.shape, reference.padding, flat.dtype)
    ends = accumulate(element_counts(reference.parts))
    for place, shape, end in zip(places(reference.parts), reference.parts, ends, strict=True):
        padded[place] = flat[end - element_count(shape) : end].reshape(shape)
    return padded


@dataclass(frozen=True, slots=True)
class NumpyPayload:
    """A contiguous array."""

    array: np.ndarray[Any, Any]
    shape: tuple[int, ...]

    @property
    def size_bytes(self) -> int:
        return self.array.nbytes

    def place(self, memory: SharedMemory, offset: int) -> int:
        memory.reserve(offset, self.array.nbytes)
        memory.memory[offset : offset + self.array.nbytes] = self.array.tobytes()
        return offset

    def end_of_row(self, rows: int) -> int:
        return rows * (self.array.nbytes // self.shape[0]) if self.shape[0] else 0


class OnnxRuntime:
    """One inference session. Inputs and outputs go by name."""

    states = None
    stepped = False
    can_offload = False

    def __init__(self, options: RuntimeOptions) -> None:
        if any(spec.datatype is Datatype.BF16 for spec in (*options.inputs, *options.outputs)):
            raise BrokenContract("BF16 is not supported by runtime = 'onnx'")
        refuse_ragged(options, "onnx")
        self.arrays = NumpyArrays()
        self._outputs = [spec.name for spec in options.outputs]
        self._session: onnxruntime.InferenceSession | None = None
        self._file_bytes = 0

    def load(self, context: ModelContext) -> None:
        path = context.path / "model.onnx"
        self._file_bytes = _bytes_on_disk(context.path)
        on_gpu = context.device != "cpu"
        providers = ["CUDAExecutionProvider", "CPUExecutionProvider"] if on_gpu else ["CPUExecutionProvider"]
        self._session = onnxruntime.InferenceSession(path, providers=providers)

    def infer(self, inputs: Mapping[str, Any], batch: Batch) -> Mapping[str, Any]:
        assert self._session is not None
        return dict(zip(self._outputs, self._session.run(self._outputs, dict(inputs)), strict=True))

    def weights_bytes(self) -> int:
        return self._file_bytes

    def offload(self) -> int:
        raise NotImplementedError("onnxruntime can't move a session's weights")

    def restore(self) -> None:
        raise NotImplementedError("onnxruntime can't move a session's weights")

    def unload(self) -> None:
        self._session = None

    def retained_bytes(self) -> int:
        return 0  # onnxruntime does not tell


def _bytes_on_disk(folder: Path) -> int:
    """onnxruntime does not tell what it holds; the model's files, external weights included, come near it."""
    return sum(file.stat().st_size for file in folder.iterdir() if file.is_file())


def create(options: RuntimeOptions) -> Runtime:
    """A runtime for one model."""
    return OnnxRuntime(options)
