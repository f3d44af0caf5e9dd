"""NumPy arrays to the protocol's raw tensors and back.

BYTES are object arrays of `bytes`; `str` is accepted and sent as UTF-8. NumPy has no BF16: arrays of
`ml_dtypes.bfloat16` and `BFloat16` are sent as BF16, and BF16 comes back as `ml_dtypes.bfloat16` where that package
is installed, else as the 16-bit patterns in a uint16 array.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from moorage_client.errors import InvalidRequest, InvalidResponse

Array: TypeAlias = NDArray[Any]

_DATATYPE_OF_DTYPE = {
    "bool": "BOOL",
    "uint8": "UINT8",
    "uint16": "UINT16",
    "uint32": "UINT32",
    "uint64": "UINT64",
    "int8": "INT8",
    "int16": "INT16",
    "int32": "INT32",
    "int64": "INT64",
    "float16": "FP16",
    "float32": "FP32",
    "float64": "FP64",
    "bfloat16": "BF16",
}
# BF16 is left out: which dtype stands for it depends on what is installed.
_DTYPE_OF_DATATYPE = {
    datatype: np.dtype(name).newbyteorder("<") for name, datatype in _DATATYPE_OF_DTYPE.items() if name != "bfloat16"
}
_LENGTH = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class BFloat16:
    """A BF16 tensor without ml_dtypes: the upper halves of FP32 numbers, as uint16."""

    bits: NDArray[np.uint16]

    @classmethod
    def from_floats(cls, values: ArrayLike) -> "BFloat16":
        """Rounded to the nearest, ties to even; NaN stays NaN."""
        floats = np.asarray(values, dtype=np.float32)
        bits = floats.view(np.uint32)
        rounded = (bits + (((bits >> 16) & 1) + 0x7FFF).astype(np.uint32)) >> 16
        return cls(np.where(np.isnan(floats), 0x7FC0, rounded).astype(np.uint16))


Tensor: TypeAlias = ArrayLike | BFloat16


@dataclass(frozen=True, slots=True)
class RawTensor:
    """A tensor as it travels: little endian, row-major; for BYTES each element is a 4-byte length and the bytes."""

    datatype: str
    shape: tuple[int, ...]
    data: bytes


def encode(name: str, value: Tensor) -> RawTensor:
    """The input `name` as it travels; its datatype follows from the array's dtype.

    Raises InvalidRequest, naming the input, for a value that the protocol can't carry.
    """
    if isinstance(value, BFloat16):
        return RawTensor("BF16", value.bits.shape, value.bits.astype("<u2", copy=False).tobytes())
    array = _as_array(name, value)
    datatype = datatype_of(array)
    if datatype is None:
        raise InvalidRequest(f"input '{name}': the protocol has no datatype for arrays of {array.dtype}")
    if datatype == "BYTES":
        return RawTensor(datatype, array.shape, _join_elements(name, array))
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("<"))
    return RawTensor(datatype, array.shape, array.tobytes())


def datatype_of(array: Array) -> str | None:
    """The protocol's datatype for arrays of this dtype; None where it has none."""
    if array.dtype.kind in "OSU":
        return "BYTES"
    return _DATATYPE_OF_DTYPE.get(array.dtype.name)


def dtype_of(datatype: str) -> np.dtype[Any] | None:
    """The dtype of arrays that come back for the protocol's datatype; None for an unknown one."""
    if datatype == "BYTES":
        return np.dtype(object)
    return _bfloat16_dtype() if datatype == "BF16" else _DTYPE_OF_DATATYPE.get(datatype)


def decode(name: str, datatype: str, shape: Sequence[int], data: bytes) -> Array:
    """The output `name` as an array; except for BOOL and BYTES a read-only view of `data`.

    Raises InvalidResponse, naming the output, where data, shape and datatype do not agree.
    """
    if any(size < 0 for size in shape):
        raise InvalidResponse(f"output '{name}': negative dimension in shape {list(shape)}")
    if datatype == "BYTES":
        return _split_elements(name, shape, data)
    dtype = dtype_of(datatype)
    if dtype is None:
        raise InvalidResponse(f"output '{name}': unknown datatype '{datatype}'")
    expected_bytes = prod(shape) * dtype.itemsize
    if len(data) != expected_bytes:
        raise InvalidResponse(
            f"output '{name}': {datatype} {list(shape)} takes {expected_bytes} bytes, {len(data)} came"
        )
    if datatype == "BOOL":
        # Not a view: NumPy takes it for granted that a bool is 0 or 1, and these bytes come from outside.
        return _reshaped(name, np.frombuffer(data, np.uint8) != 0, shape)
    return _reshaped(name, np.frombuffer(data, dtype), shape)


def _as_array(name: str, value: ArrayLike) -> Array:
    if isinstance(value, np.ndarray):
        return value
    try:
        # Text goes in as objects: NumPy's own string dtypes drop trailing zero bytes.
        return np.array(value, dtype=object) if _holds_text(value) else np.asarray(value)
    except (ValueError, OverflowError) as error:
        raise InvalidRequest(f"input '{name}': {error}") from error


def _holds_text(value: object) -> bool:
    while isinstance(value, list | tuple) and value:
        value = value[0]
    return isinstance(value, str | bytes)


def _join_elements(name: str, array: Array) -> bytes:
    parts: list[bytes] = []
    for element in array.ravel():  # row-major, whatever the memory layout
        if isinstance(element, str):
            element = element.encode()  # noqa: PLW2901 the same element, spelled in bytes
        elif not isinstance(element, bytes):
            raise InvalidRequest(f"input '{name}': a BYTES element must be bytes or str, got {type(element).__name__}")
        parts += (_LENGTH.pack(len(element)), element)
    return b"".join(parts)


def _split_elements(name: str, shape: Sequence[int], data: bytes) -> Array:
    count = prod(shape)
    if count * _LENGTH.size > len(data):  # before anything of that size is allocated
        raise InvalidResponse(f"output '{name}': BYTES {list(shape)} can't be in {len(data)} bytes")
    elements = np.empty(count, dtype=object)
    offset = 0
    for index in range(count):
        start = offset + _LENGTH.size
        if start > len(data):
            raise InvalidResponse(f"output '{name}': the data ends before element {index} of {count}")
        offset = start + _LENGTH.unpack_from(data, start - _LENGTH.size)[0]
        elements[index] = data[start:offset]
    if offset != len(data):
        raise InvalidResponse(f"output '{name}': {count} elements end at byte {offset}, {len(data)} bytes came")
    return _reshaped(name, elements, shape)


def _reshaped(name: str, array: Array, shape: Sequence[int]) -> Array:
    try:
        return array.reshape(shape)
    except (ValueError, OverflowError) as error:  # the count is right: NumPy has bounds of its own on rank and size
        raise InvalidResponse(f"output '{name}': shape {list(shape)} is no array's: {error}") from error


def _bfloat16_dtype() -> np.dtype[Any]:
    try:
        ml_dtypes: Any = import_module("ml_dtypes")
    except ImportError:
        return np.dtype("<u2")
    dtype: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return dtype
