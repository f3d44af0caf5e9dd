"""A request's tensors, from what was typed: texts, a JSON file, .npy files."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from moorage_client import BFloat16, ModelMetadata, TensorMetadata, dtype_of
from moorage_client.tensors import Array, Tensor

# By dtype.kind: integers are welcome where floats are wanted, and truth values where integers are; not the reverse.
_ELEMENT_TYPES: Mapping[str, tuple[type, ...]] = {
    "b": (bool,),
    "i": (int,),
    "u": (int,),
    "f": (int, float),
    "O": (str,),
}


class InputError(Exception):
    """What was typed, or a file it names, is no input of the model. Says which and why."""


@dataclass(frozen=True, slots=True)
class Sources:
    """What was given: texts for the one BYTES input, nested lists and arrays by input name."""

    texts: tuple[str, ...]
    nested: Mapping[str, Any]
    arrays: Mapping[str, Array]


def read_sources(texts: tuple[str, ...], json_file: str | None, npy_files: Sequence[tuple[str, Path]]) -> Sources:
    """Read the files. Raises InputError for one that can't be read."""
    nested = {} if json_file is None else _read_json(json_file)
    arrays: dict[str, Array] = {}
    for name, path in npy_files:
        if name in nested or name in arrays:
            raise InputError(f"input '{name}' is given twice")
        arrays[name] = _read_npy(name, path)
    return Sources(texts, nested, arrays)


def tensors(metadata: ModelMetadata, sources: Sources) -> dict[str, Tensor]:
    """The inputs as the model declares them. Raises InputError, naming the input that can't be made."""
    declared = {tensor.name: tensor for tensor in metadata.inputs}
    given: dict[str, Tensor] = {}
    for name, value in sources.nested.items():
        given[name] = from_nested(_declared(declared, name, metadata.name), value)
    for name, array in sources.arrays.items():
        tensor = _declared(declared, name, metadata.name)
        given[name] = BFloat16.from_floats(array) if tensor.datatype == "BF16" and array.dtype.kind == "f" else array
    if sources.texts:
        tensor = _text_input(metadata)
        if tensor.name in given:
            raise InputError(f"input '{tensor.name}' is given twice")
        given[tensor.name] = from_texts(tensor, sources.texts)
    return given


def from_texts(tensor: TensorMetadata, texts: Sequence[str]) -> Array:
    """A row per text."""
    array = np.array([text.encode() for text in texts], dtype=object)
    rows = (len(texts), *(1 for _ in tensor.shape[1:]))
    shape = rows if matches(rows, tensor.shape) else fit_shape(array.shape, tensor.shape)
    if shape is None:
        raise InputError(f"input '{tensor.name}': {len(texts)} texts don't fit the shape {list(tensor.shape)}")
    return array.reshape(shape)


def from_nested(tensor: TensorMetadata, value: Any) -> Tensor:
    """A nested list, or a plain value, as the tensor declares it."""
    array = _array(tensor, value)
    shape = fit_shape(array.shape, tensor.shape)
    if shape is None:
        raise InputError(f"input '{tensor.name}': expected shape {list(tensor.shape)}, got {list(array.shape)}")
    array = array.reshape(shape)
    return BFloat16.from_floats(array) if tensor.datatype == "BF16" else array


def matches(shape: Sequence[int], declared: Sequence[int]) -> bool:
    """Whether the shape is one that was declared; -1 stands for any size."""
    return len(shape) == len(declared) and all(want in {-1, size} for size, want in zip(shape, declared, strict=True))


def fit_shape(shape: tuple[int, ...], declared: tuple[int, ...]) -> tuple[int, ...] | None:
    """The shape to send: as it is, with a batch axis put before it, or a flat list cut into rows; else None."""
    if matches(shape, declared):
        return shape
    if declared[:1] == (-1,) and matches(shape, declared[1:]):
        return (1, *shape)
    row_elements = prod(declared[1:])
    if len(shape) == 1 and declared[:1] == (-1,) and row_elements > 0 and -1 not in declared[1:]:
        rows, rest = divmod(shape[0], row_elements)
        return None if rest else (rows, *declared[1:])
    return None


def _declared(declared: Mapping[str, TensorMetadata], name: str, model: str) -> TensorMetadata:
    if name not in declared:
        raise InputError(f"model '{model}' has no input '{name}'; it has {', '.join(declared) or 'none'}")
    return declared[name]


def _text_input(metadata: ModelMetadata) -> TensorMetadata:
    candidates = [tensor for tensor in metadata.inputs if tensor.datatype == "BYTES"]
    if len(candidates) != 1:
        names = ", ".join(tensor.name for tensor in candidates) or "none"
        raise InputError(f"--text: model '{metadata.name}' must have exactly one BYTES input, it has {names}")
    return candidates[0]


def _array(tensor: TensorMetadata, value: Any) -> Array:
    """Of the dtype that stands for the declared datatype; FP32 for BF16, which NumPy has not."""
    dtype = np.dtype(np.float32) if tensor.datatype == "BF16" else dtype_of(tensor.datatype)
    if dtype is None:
        raise InputError(f"input '{tensor.name}': unknown datatype '{tensor.datatype}'")
    try:
        elements = np.array(value, dtype=object)
        for element in elements.flat:
            # NumPy itself would cut off 1.5 for an INT32, and read "1" as a number.
            if not isinstance(element, _ELEMENT_TYPES[dtype.kind]):
                raise InputError(f"input '{tensor.name}': expected {tensor.datatype}, got {element!r}")
        return elements.astype(dtype)
    except (ValueError, OverflowError) as error:
        raise InputError(f"input '{tensor.name}': {error}") from error


def _read_json(json_file: str) -> dict[str, Any]:
    where = "stdin" if json_file == "-" else json_file
    try:
        document = json.loads(sys.stdin.read() if json_file == "-" else Path(json_file).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"--json: {where}: {error.strerror}") from error
    except ValueError as error:  # also UnicodeDecodeError
        raise InputError(f"--json: {where}: {error}") from error
    if isinstance(document, dict) and isinstance(document.get("inputs"), dict):
        document = document["inputs"]
    if not isinstance(document, dict):
        raise InputError(f"--json: {where}: expected an object of inputs by name, got {type(document).__name__}")
    return document


def _read_npy(name: str, path: Path) -> Array:
    try:
        array: Array = np.load(path, allow_pickle=False)
    except OSError as error:
        raise InputError(f"--npy {name}: {path}: {error.strerror or error}") from error
    except (ValueError, EOFError) as error:
        raise InputError(f"--npy {name}: {path}: {error}") from error
    return array
