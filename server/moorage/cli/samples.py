"""Requests of any number of rows, to profile a model with: of zeros, or of rows that were given."""

from collections.abc import Mapping

import numpy as np

from moorage.cli.arrays import InputError
from moorage.cli.inputs import Sources, tensors
from moorage.domain.model import ModelSpec, WarmupInput
from moorage_client import BFloat16, ModelMetadata, TensorMetadata, dtype_of
from moorage_client.tensors import Array, Tensor

Sample = Mapping[str, Tensor]
"""By input, a few rows; or the whole tensor, of a model without a batch axis."""


def samples_of(
    metadata: ModelMetadata, sources: Sources, shapes: Mapping[str, tuple[int, ...]], spec: ModelSpec
) -> list[Sample]:
    """One for each text that was given, or one. Inputs that were not given are as in the first warm-up, or zeros.

    shapes: of such inputs, without the batch axis. Raises InputError for an input that can't be made.
    """
    unknown = sorted(set(shapes) - {tensor.name for tensor in metadata.inputs})
    if unknown:
        raise InputError(f"--shape: model '{metadata.name}' has no input '{unknown[0]}'")
    warm = {item.name: item for run in spec.warmup[:1] for item in run.inputs}
    texts: list[tuple[str, ...]] = [(text,) for text in sources.texts] or [_texts(metadata, sources, warm)]
    shapes = {**{name: item.shape for name, item in warm.items()}, **shapes}
    batched = spec.max_batch_size > 0
    return [_sample(metadata, Sources(text, sources.nested, sources.arrays), shapes, batched=batched) for text in texts]


def _texts(metadata: ModelMetadata, sources: Sources, warm: Mapping[str, WarmupInput]) -> tuple[str, ...]:
    """The texts of a warm-up, for a model that takes nothing else which are texts."""
    names = [tensor.name for tensor in metadata.inputs if tensor.datatype == "BYTES"]
    if len(names) != 1 or names[0] not in warm or names[0] in {*sources.nested, *sources.arrays}:
        return ()
    return tuple(str(value) for value in warm[names[0]].values)


def _sample(
    metadata: ModelMetadata, sources: Sources, shapes: Mapping[str, tuple[int, ...]], *, batched: bool
) -> Sample:
    given = tensors(metadata, sources)
    zeros = {
        tensor.name: _zeros(tensor, shapes.get(tensor.name), batched=batched)
        for tensor in metadata.inputs
        if tensor.name not in given
    }
    return {**zeros, **given}


def _zeros(tensor: TensorMetadata, shape: tuple[int, ...] | None, *, batched: bool) -> Tensor:
    declared = tensor.shape[1:] if batched else tensor.shape
    if shape is None:
        shape = declared
    if -1 in shape:
        what = "--text TEXT" if tensor.datatype == "BYTES" else f"--shape {tensor.name}=SIZE"
        raise InputError(f"input '{tensor.name}' has the shape {list(declared)}: give {what}, --json or --npy")
    if len(shape) != len(declared) or any(want not in {-1, size} for want, size in zip(declared, shape, strict=True)):
        raise InputError(f"--shape {tensor.name}: expected {list(declared)}, got {list(shape)}")
    if tensor.datatype == "BYTES":
        raise InputError(f"input '{tensor.name}' takes texts: give --text, --json or --npy")
    whole = (1, *shape) if batched else shape
    if tensor.datatype == "BF16":
        return BFloat16.from_floats(np.zeros(whole, np.float32))
    return np.zeros(whole, dtype_of(tensor.datatype))


def with_rows(sample: Sample, rows: int) -> dict[str, Tensor]:
    """A request of so many rows, made of the sample's over and over."""
    return {name: _repeated(tensor, rows) for name, tensor in sample.items()}


def _repeated(tensor: Tensor, rows: int) -> Tensor:
    if isinstance(tensor, BFloat16):
        return BFloat16(_rows(tensor.bits, rows))
    return _rows(np.asarray(tensor), rows)


def _rows(array: Array, rows: int) -> Array:
    taken: Array = np.take(array, np.arange(rows) % len(array), axis=0)
    return taken
