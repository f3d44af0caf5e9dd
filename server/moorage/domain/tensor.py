"""Tensors as the protocol describes them: a datatype, a shape, and bytes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

Element = bool | int | float
"""One element of a tensor of any datatype but BYTES."""

# A documented limit of the protocol side. Frameworks stop at 32 (NumPy before 2.0) or 64 dimensions.
MAX_RANK = 32
# All inputs of one run together: half of the memory that a model's worker shares with the server.
MAX_RUN_INPUT_BYTES = 4 * 1024**3


class Datatype(StrEnum):
    """The datatypes of the Open Inference Protocol."""

    BOOL = "BOOL"
    UINT8 = "UINT8"
    UINT16 = "UINT16"
    UINT32 = "UINT32"
    UINT64 = "UINT64"
    INT8 = "INT8"
    INT16 = "INT16"
    INT32 = "INT32"
    INT64 = "INT64"
    FP16 = "FP16"
    FP32 = "FP32"
    FP64 = "FP64"
    BF16 = "BF16"
    BYTES = "BYTES"

    @property
    def item_bytes(self) -> int:
        """Bytes of one element; for BYTES the four bytes of an element's length prefix, its least size."""
        return _ITEM_BYTES[self]


_ITEM_BYTES = {
    Datatype.BOOL: 1,
    Datatype.UINT8: 1,
    Datatype.UINT16: 2,
    Datatype.UINT32: 4,
    Datatype.UINT64: 8,
    Datatype.INT8: 1,
    Datatype.INT16: 2,
    Datatype.INT32: 4,
    Datatype.INT64: 8,
    Datatype.FP16: 2,
    Datatype.FP32: 4,
    Datatype.FP64: 8,
    Datatype.BF16: 2,
    Datatype.BYTES: 4,
}


def element_count(shape: Sequence[int]) -> int:
    """Number of elements of a shape whose dimensions are all known. A scalar (empty shape) has one."""
    return math.prod(shape)


@dataclass(frozen=True, slots=True, init=False)
class TensorSpec:
    """What a model declares of one input or output.

    shape: without the batch axis; -1 stands for any size.
    optional: an input that a request may leave out.
    ragged: the model gets a list of such an input, one tensor for each request of a run.
    padding: the model gets one tensor; those of a run that are smaller than the largest are filled up with this value.
    """

    name: str
    datatype: Datatype
    shape: tuple[int, ...]
    optional: bool
    ragged: bool
    padding: Element | None

    def __init__(
        self,
        name: str,
        datatype: str,
        shape: Sequence[int],
        *,
        optional: bool = False,
        ragged: bool = False,
        padding: Element | None = None,
    ) -> None:
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "datatype", Datatype(datatype))
        object.__setattr__(self, "shape", tuple(shape))
        object.__setattr__(self, "optional", optional)
        object.__setattr__(self, "ragged", ragged)
        object.__setattr__(self, "padding", padding)

    @property
    def varies(self) -> bool:
        """Whether requests share a run though their tensors differ where the shape says -1."""
        return self.ragged or self.padding is not None


@dataclass(frozen=True, slots=True)
class InputTensor:
    """One input of one request.

    shape: the whole shape, the batch axis included where the model has one.
    data: little endian, row-major; for BYTES each element is a 4-byte length and the bytes.
    row_ends: where in data each row ends, of a BYTES input that may be split between rows; else empty.
    """

    name: str
    datatype: Datatype
    shape: tuple[int, ...]
    data: bytes | memoryview
    row_ends: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class OutputTensor:
    """One output of one request, laid out as InputTensor is.

    data: a view into shared memory that is valid only until the response has been rendered.
    """

    name: str
    datatype: Datatype
    shape: tuple[int, ...]
    data: bytes | memoryview
