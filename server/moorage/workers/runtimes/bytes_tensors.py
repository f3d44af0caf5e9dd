"""BYTES tensors: each element is a 4-byte little-endian length and the bytes, row-major."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from moorage.domain.tensor import element_count
from moorage.workers.lane_messages import TensorReference
from moorage.workers.runtimes.base import BrokenContract, SharedMemory
from moorage.workers.runtimes.parts import element_counts

_LENGTH_BYTES = 4


def read_bytes(memory: SharedMemory, reference: TensorReference) -> list[Any]:
    """The elements as one flat list, or a flat list for each request of a ragged input.

    The server has checked the layout.
    """
    data = memory.memory[reference.offset : reference.offset + reference.size_bytes]
    counts = element_counts(reference.parts or (reference.shape,))
    elements: list[bytes] = []
    position = 0
    for _ in range(sum(counts)):
        start = position + _LENGTH_BYTES
        position = start + int.from_bytes(data[position:start], "little")
        elements.append(data[start:position])
    if not reference.parts:
        return elements
    return [elements[end - count : end] for count, end in zip(counts, accumulate(counts), strict=True)]


@dataclass(frozen=True, slots=True)
class BytesPayload:
    """Encoded elements, and where each ends."""

    shape: tuple[int, ...]
    data: bytes
    ends: tuple[int, ...]

    @property
    def size_bytes(self) -> int:
        return len(self.data)

    def place(self, memory: SharedMemory, offset: int) -> int:
        memory.reserve(offset, len(self.data))
        memory.memory[offset : offset + len(self.data)] = self.data
        return offset

    def end_of_row(self, rows: int) -> int:
        elements = rows * element_count(self.shape[1:])
        return self.ends[elements - 1] if elements else 0


def bytes_payload(name: str, value: Any, declared: tuple[int, ...]) -> BytesPayload:
    """Encode nested lists (or an array) of bytes or str; or a flat list of as many as the declared shape holds.

    Raises BrokenContract for ragged nesting, or elements of another type.
    """
    if hasattr(value, "tolist"):
        value = value.tolist()
    shape = _shape(value)
    flat = len(shape) == 1
    chunks: list[bytes] = []
    ends: list[int] = []
    total = 0
    for element in _flat(name, value, shape):
        data = element.encode() if isinstance(element, str) else element
        if not isinstance(data, bytes | bytearray | memoryview):
            raise BrokenContract(f"output '{name}': expected bytes or str elements, got {type(element).__name__}")
        chunks += [len(data).to_bytes(_LENGTH_BYTES, "little"), bytes(data)]
        total += _LENGTH_BYTES + len(data)
        ends.append(total)
    if flat and -1 not in declared and len(ends) == element_count(declared):
        shape = declared
    return BytesPayload(shape, b"".join(chunks), tuple(ends))


def _shape(value: Any) -> tuple[int, ...]:
    shape: list[int] = []
    while isinstance(value, list | tuple):
        shape.append(len(value))
        if not value:
            break
        value = value[0]
    return tuple(shape)


def _flat(name: str, value: Any, shape: tuple[int, ...]) -> Iterable[Any]:
    if not shape:
        yield value
        return
    if not isinstance(value, list | tuple) or len(value) != shape[0]:
        raise BrokenContract(f"output '{name}': nested lists of unequal length")
    for item in value:
        yield from _flat(name, item, shape[1:])
