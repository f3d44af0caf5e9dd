"""Torch tensors in and out of shared memory."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from moorage.domain.tensor import Datatype, TensorSpec
from moorage.workers.lane_messages import TensorReference
from moorage.workers.runtimes.base import BrokenContract, Payload, SharedMemory
from moorage.workers.runtimes.bytes_tensors import bytes_payload, read_bytes
from moorage.workers.runtimes.parts import element_counts, places
from moorage.workers.segment import SEGMENT_BYTES

DTYPES = {
    Datatype.BOOL: torch.bool,
    Datatype.UINT8: torch.uint8,
    Datatype.UINT16: torch.uint16,
    Datatype.UINT32: torch.uint32,
    Datatype.UINT64: torch.uint64,
    Datatype.INT8: torch.int8,
    Datatype.INT16: torch.int16,
    Datatype.INT32: torch.int32,
    Datatype.INT64: torch.int64,
    Datatype.FP16: torch.float16,
    Datatype.FP32: torch.float32,
    Datatype.FP64: torch.float64,
    Datatype.BF16: torch.bfloat16,
}
_BY_NAME = {datatype.value: dtype for datatype, dtype in DTYPES.items()}


class TorchArrays:
    """Inputs are views of the segment on a CPU, copies on another device. Only what is padded is a copy anywhere."""

    def __init__(self, device: str) -> None:
        self._device = None if device == "cpu" else torch.device(device)

    def read(self, memory: SharedMemory, reference: TensorReference) -> Any:
        if reference.datatype == Datatype.BYTES.value:
            return read_bytes(memory, reference)
        flat = _flat(memory, reference)
        if not reference.parts:
            return self._on_device(flat.view(reference.shape))
        if reference.padding is None:
            return _parted(self._on_device(flat), reference)
        return self._on_device(_padded(flat, reference))

    def _on_device(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor if self._device is None else tensor.to(self._device)

    def payload(self, spec: TensorSpec, shape: tuple[int, ...], value: Any) -> Payload:
        if spec.datatype is Datatype.BYTES:
            return bytes_payload(spec.name, value, shape)
        if not isinstance(value, torch.Tensor):
            raise BrokenContract(f"output '{spec.name}': expected a torch.Tensor, got {type(value).__name__}")
        if value.dtype is not DTYPES[spec.datatype]:
            raise BrokenContract(
                f"output '{spec.name}': expected dtype {DTYPES[spec.datatype]} ({spec.datatype}), got {value.dtype}"
            )
        return TorchPayload(value.detach(), tuple(value.shape))


def _flat(memory: SharedMemory, reference: TensorReference) -> torch.Tensor:
    """All elements as they stand in the segment."""
    dtype = _BY_NAME[reference.datatype]
    if reference.size_bytes == 0:  # torch.frombuffer refuses an empty buffer
        return torch.empty(0, dtype=dtype)
    count = reference.size_bytes // dtype.itemsize
    return torch.frombuffer(memory.memory, dtype=dtype, count=count, offset=reference.offset)


def _parted(flat: torch.Tensor, reference: TensorReference) -> list[torch.Tensor]:
    """Each request's own tensor, as a view."""
    pieces: Sequence[torch.Tensor] = torch.split_with_sizes(flat, element_counts(reference.parts))
    return [piece.view(shape) for piece, shape in zip(pieces, reference.parts, strict=True)]


def _padded(flat: torch.Tensor, reference: TensorReference) -> torch.Tensor:
    """One tensor of all. On the CPU, whatever the device: what goes there is one copy, and not one for each request."""
    assert reference.padding is not None
    padded = torch.full(reference.shape, reference.padding, dtype=flat.dtype)
    for place, part in zip(places(reference.parts), _parted(flat, reference), strict=True):
        padded[place] = part
    return padded


@dataclass(frozen=True, slots=True)
class TorchPayload:
    """A tensor. Only once there is room for it is it brought to the CPU, and together where it is a scattered view."""

    tensor: torch.Tensor
    shape: tuple[int, ...]

    @property
    def size_bytes(self) -> int:
        return self.tensor.numel() * self.tensor.element_size()

    def place(self, memory: SharedMemory, offset: int) -> int:
        size_bytes = self.size_bytes
        if size_bytes == 0:
            return offset
        memory.reserve(offset, size_bytes)
        tensor = self.tensor.to("cpu").contiguous()
        inside = tensor.data_ptr() - memory.address
        if 0 <= inside <= SEGMENT_BYTES - size_bytes:
            return inside  # a view of an input: it is there already
        target = torch.frombuffer(memory.memory, dtype=torch.uint8, count=size_bytes, offset=offset)
        target.copy_(tensor.view(-1).view(torch.uint8))
        return offset

    def end_of_row(self, rows: int) -> int:
        return rows * (self.size_bytes // self.shape[0]) if self.shape[0] else 0
