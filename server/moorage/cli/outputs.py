"""A model's outputs, printed: abbreviated for people, whole for machines."""

import base64
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from moorage_client import ModelMetadata, datatype_of
from moorage_client.tensors import Array

_ABBREVIATE_ABOVE_ELEMENTS = 64


def as_text(metadata: ModelMetadata, outputs: Mapping[str, Array]) -> str:
    """For each output its name, datatype and shape, then its values, abbreviated."""
    return "\n".join(
        f"{name}  {datatype} {list(array.shape)}\n{_abbreviated(array)}"
        for name, datatype, array in _described(metadata, outputs)
    )


def as_json(metadata: ModelMetadata, outputs: Mapping[str, Array]) -> str:
    """Every value. BYTES are strings where UTF-8, else {"base64": …}. JSON has no number for what is not finite:
    "NaN", "Infinity" and "-Infinity" are strings.
    """
    described = {
        name: {"datatype": datatype, "shape": list(array.shape), "data": plain(array)}
        for name, datatype, array in _described(metadata, outputs)
    }
    return json.dumps({"model_name": metadata.name, "outputs": described}, ensure_ascii=False, allow_nan=False)


def _described(metadata: ModelMetadata, outputs: Mapping[str, Array]) -> Iterator[tuple[str, str, Array]]:
    """Name, datatype and values; BF16, which NumPy can't print, as the FP32 that it is the upper half of."""
    declared = {tensor.name: tensor.datatype for tensor in metadata.outputs}
    for name, array in outputs.items():
        datatype = declared.get(name) or datatype_of(array) or "?"
        if datatype == "BF16":
            yield name, datatype, (array.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
        else:
            yield name, datatype, array


def _abbreviated(array: Array) -> str:
    values = np.vectorize(_text_of, otypes=[object])(array) if array.dtype == object and array.size else array
    return np.array2string(values, threshold=_ABBREVIATE_ABOVE_ELEMENTS, precision=6, suppress_small=True)


def _text_of(element: bytes) -> Any:
    """Text where it is UTF-8, else the bytes themselves."""
    try:
        return element.decode()
    except UnicodeDecodeError:
        return element


def plain(array: Array) -> Any:
    """Nested lists that JSON has, as as_json says."""
    if not array.size:
        return array.tolist()
    if array.dtype == object:
        return np.vectorize(_json_of, otypes=[object])(array).tolist()
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        return np.vectorize(_finite_or_named, otypes=[object])(array).tolist()
    return array.tolist()


def _finite_or_named(value: Any) -> float | str:
    number = float(value)
    if math.isfinite(number):
        return number
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


def _json_of(element: bytes) -> Any:
    text = _text_of(element)
    return text if isinstance(text, str) else {"base64": base64.b64encode(element).decode("ascii")}
