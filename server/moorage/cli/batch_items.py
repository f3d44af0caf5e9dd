"""The items of a batch, from a file: JSON lines, or arrays whose first axis is the items."""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from moorage.cli.arrays import InputError, from_array
from moorage.cli.files import finite, refuse_constant
from moorage.cli.inputs import declared_input, fit_shape, from_nested
from moorage_client import BatchItem, ModelMetadata
from moorage_client.tensors import Array, Tensor

_KEYS = ("id", "inputs", "parameters", "outputs")


def read_items(source: str, metadata: ModelMetadata) -> Iterator[BatchItem]:
    """One after the other, read as they are taken; "-" is stdin, with JSON lines.

    Raises InputError, with the place in the file, where what comes next is no item of the model.
    """
    if source == "-":
        return _of_lines("stdin", sys.stdin.buffer, metadata)
    path = Path(source)
    try:
        if path.suffix in {".npy", ".npz"}:
            return _of_arrays(source, _arrays(path, metadata), metadata)
        return _of_lines(source, path.open("rb"), metadata)
    except OSError as error:
        raise InputError(f"{source}: {error.strerror or error}") from error


def _of_lines(where: str, lines: IO[bytes], metadata: ModelMetadata) -> Iterator[BatchItem]:
    with lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                try:
                    yield _of_line(line, metadata)
                except InputError as error:
                    raise InputError(f"{where}: line {number}: {error}") from error


def _of_line(line: bytes, metadata: ModelMetadata) -> BatchItem:
    try:
        document = json.loads(line, parse_float=finite, parse_constant=refuse_constant)
    except (ValueError, RecursionError) as error:
        raise InputError(f"expected JSON, got {line[:60]!r}: {error}") from error
    if not isinstance(document, dict) or not isinstance(document.get("inputs"), dict):
        raise InputError('expected an object such as {"id": "a", "inputs": {…}}, got ' + repr(line[:60]))
    unknown = sorted(document.keys() - set(_KEYS))
    if unknown:
        raise InputError(f"expected the keys {', '.join(_KEYS)}, got '{unknown[0]}'")
    item_id, parameters = document.get("id", ""), document.get("parameters", {})
    if not isinstance(item_id, str | int) or isinstance(item_id, bool):
        raise InputError(f"id: expected a string or a whole number, got {item_id!r}")
    if not isinstance(parameters, dict) or not all(
        isinstance(it, bool | int | float | str) for it in parameters.values()
    ):
        raise InputError(f"parameters: expected an object of plain values, got {parameters!r}")
    return BatchItem(_tensors(document["inputs"], metadata), str(item_id), _names(document), parameters)


def _names(document: Mapping[str, Any]) -> list[str]:
    names = document.get("outputs", [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InputError(f"outputs: expected a list of names, got {names!r}")
    return names


def _tensors(inputs: Mapping[str, Any], metadata: ModelMetadata) -> dict[str, Tensor]:
    """A plain value is a row of one."""
    declared = {tensor.name: tensor for tensor in metadata.inputs}
    return {
        name: from_nested(declared_input(declared, name, metadata.name), value if isinstance(value, list) else [value])
        for name, value in inputs.items()
    }


def _arrays(path: Path, metadata: ModelMetadata) -> Mapping[str, Array]:
    """By input, each with the items as its first axis."""
    try:
        if path.suffix == ".npy":
            if len(metadata.inputs) != 1:
                names = ", ".join(tensor.name for tensor in metadata.inputs)
                raise InputError(f"{path}: model '{metadata.name}' has the inputs {names}: expected a .npz file")
            return {metadata.inputs[0].name: np.lib.format.open_memmap(path, mode="r")}
        with np.load(path, allow_pickle=False) as archive:
            return dict(archive)
    except (ValueError, EOFError) as error:
        raise InputError(f"{path}: is no {path.suffix} file, is damaged, or holds Python objects") from error


def _of_arrays(where: str, arrays: Mapping[str, Array], metadata: ModelMetadata) -> Iterator[BatchItem]:
    declared = {tensor.name: tensor for tensor in metadata.inputs}
    counts = {name: len(array) if array.ndim else 0 for name, array in arrays.items()}
    if len(set(counts.values())) > 1:
        raise InputError(f"{where}: expected as many items of each input, got {counts}")
    for number in range(next(iter(counts.values()), 0)):
        tensors: dict[str, Tensor] = {}
        for name, array in arrays.items():
            tensor, row = declared_input(declared, name, metadata.name), np.asarray(array[number])
            shape = fit_shape(row.shape, tensor.shape)
            if shape is None:
                expected = f"expected shape {list(tensor.shape)}"
                raise InputError(f"{where}: item {number}: input '{name}': {expected}, got {list(row.shape)}")
            tensors[name] = from_array(tensor, row.reshape(shape))
        yield BatchItem(tensors, str(number))
