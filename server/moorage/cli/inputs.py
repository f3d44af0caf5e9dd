"""A request's tensors, from what was typed: texts, a JSON file, .npy files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from moorage.cli.arrays import InputError, from_array, from_list, to_send
from moorage.cli.files import read_json, read_npy
from moorage_client import ModelMetadata, TensorMetadata
from moorage_client.tensors import Array, Tensor


@dataclass(frozen=True, slots=True)
class Sources:
    """What was given: texts for the one BYTES input, nested lists and arrays by input name."""

    texts: tuple[str, ...]
    nested: Mapping[str, Any]
    arrays: Mapping[str, Array]


def read_sources(texts: tuple[str, ...], json_file: str | None, npy_files: Sequence[tuple[str, Path]]) -> Sources:
    """Read the files. Raises InputError for one that can't be read."""
    nested = {} if json_file is None else read_json(json_file)
    arrays: dict[str, Array] = {}
    for name, path in npy_files:
        if name in nested or name in arrays:
            raise InputError(f"input '{name}' is given twice")
        arrays[name] = read_npy(name, path)
    return Sources(texts, nested, arrays)


def tensors(metadata: ModelMetadata, sources: Sources) -> dict[str, Tensor]:
    """The inputs as the model declares them. Raises InputError, naming the input that can't be made."""
    declared = {tensor.name: tensor for tensor in metadata.inputs}
    given: dict[str, Tensor] = {}
    for name, value in sources.nested.items():
        given[name] = from_nested(declared_input(declared, name, metadata.name), value)
    for name, array in sources.arrays.items():
        given[name] = from_array(declared_input(declared, name, metadata.name), array)
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
    array = from_list(tensor, value)
    shape = fit_shape(array.shape, tensor.shape)
    if shape is None:
        raise InputError(f"input '{tensor.name}': expected shape {list(tensor.shape)}, got {list(array.shape)}")
    return to_send(tensor, array.reshape(shape))


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


def declared_input(declared: Mapping[str, TensorMetadata], name: str, model: str) -> TensorMetadata:
    """The model's input of that name. Raises InputError where it has none."""
    if name not in declared:
        raise InputError(f"model '{model}' has no input '{name}'; it has {', '.join(declared) or 'none'}")
    return declared[name]


def _text_input(metadata: ModelMetadata) -> TensorMetadata:
    candidates = [tensor for tensor in metadata.inputs if tensor.datatype == "BYTES"]
    if len(candidates) != 1:
        names = ", ".join(tensor.name for tensor in candidates) or "none"
        raise InputError(f"--text: model '{metadata.name}' must have exactly one BYTES input, it has {names}")
    return candidates[0]
