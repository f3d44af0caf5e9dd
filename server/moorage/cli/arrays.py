"""Values and arrays that were typed or read, as the datatype that a model declares; or why they can't be."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from moorage_client import BFloat16, TensorMetadata, dtype_of
from moorage_client.tensors import Array, Tensor

# By dtype.kind: integers are welcome where floats are wanted, and truth values where integers are; not the reverse.
_ELEMENT_TYPES: Mapping[str, tuple[type, ...]] = {
    "b": (bool,),
    "i": (int,),
    "u": (int,),
    "f": (int, float),
    "O": (str,),
}
# The same for arrays, which do not mix: kinds that may become the kind.
_ARRAY_KINDS: Mapping[str, str] = {"b": "b", "i": "iu", "u": "iu", "f": "fiu", "O": "SU"}


class InputError(Exception):
    """What was typed, or a file it names, is no input of the model. Says which and why."""


def from_list(tensor: TensorMetadata, value: Any) -> Array:
    """Nested lists, or a plain value, with the declared datatype; FP32 for BF16. Raises InputError."""
    dtype = _wanted(tensor)
    try:
        elements = np.array(value, dtype=object)
    except ValueError as error:  # lists of which only some levels agree
        raise _ragged(tensor) from error
    # NumPy itself would cut off 1.5 for an INT32, and read "1" as a number.
    _check_elements(tensor, elements.flat, _ELEMENT_TYPES[dtype.kind])
    try:
        return _converted(tensor, elements, dtype)
    except OverflowError as error:
        raise _out_of_range(tensor) from error


def from_array(tensor: TensorMetadata, array: Array) -> Tensor:
    """An array with the declared datatype, where that loses no more than a float's last digits. Raises InputError."""
    dtype = _wanted(tensor)
    if array.dtype.kind not in _ARRAY_KINDS[dtype.kind]:
        raise InputError(f"input '{tensor.name}': expected {tensor.datatype}, got an array of {array.dtype}")
    if dtype.kind == "O":
        return array  # the client encodes texts of any width
    if dtype.kind in "iu" and array.size and not _holds(dtype, array):
        raise _out_of_range(tensor)
    return to_send(tensor, _converted(tensor, array, dtype))


def to_send(tensor: TensorMetadata, array: Array) -> Tensor:
    """NumPy has no BF16: what stands for it becomes it."""
    return BFloat16.from_floats(array) if tensor.datatype == "BF16" else array


def _wanted(tensor: TensorMetadata) -> np.dtype[Any]:
    dtype = np.dtype(np.float32) if tensor.datatype == "BF16" else dtype_of(tensor.datatype)
    if dtype is None:
        raise InputError(f"input '{tensor.name}': unknown datatype '{tensor.datatype}'")
    return dtype


def _check_elements(tensor: TensorMetadata, elements: Iterable[Any], types: tuple[type, ...]) -> None:
    for element in elements:
        if isinstance(element, list):
            raise _ragged(tensor)
        if not isinstance(element, types):
            raise InputError(f"input '{tensor.name}': expected {tensor.datatype}, got {element!r}")


def _converted(tensor: TensorMetadata, array: Array, dtype: np.dtype[Any]) -> Array:
    with np.errstate(over="ignore"):  # it is looked for here, and told in our words
        converted = array.astype(dtype, copy=False)
    # Infinity that was not there before: too large for the datatype.
    if dtype.kind == "f" and not np.array_equal(np.isinf(converted), _infinite(array)):
        raise _out_of_range(tensor)
    return converted


def _infinite(array: Array) -> Any:
    return np.isinf(array) if array.dtype.kind == "f" else np.zeros(array.shape, bool)


def _holds(dtype: np.dtype[Any], array: Array) -> bool:
    limits = np.iinfo(dtype)
    return int(array.min()) >= limits.min and int(array.max()) <= limits.max


def _ragged(tensor: TensorMetadata) -> InputError:
    return InputError(f"input '{tensor.name}': the lists are ragged: all lists of one level must be equally long")


def _out_of_range(tensor: TensorMetadata) -> InputError:
    return InputError(f"input '{tensor.name}': a value is out of range for {tensor.datatype}")
