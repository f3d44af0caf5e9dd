"""What a warm-up's inputs are, in the memory that a real run's are in."""

import mmap
from typing import Any

import numpy as np
import pytest
import torch

from moorage.domain.model import Fill, WarmupInput, WarmupRun
from moorage.domain.tensor import Datatype
from moorage.workers import segment as segments
from moorage.workers.child.warmup import write_inputs
from moorage.workers.lane_messages import TensorReference
from moorage.workers.runtimes.base import SharedMemory
from moorage.workers.runtimes.torch_arrays import TorchArrays

NUMBERS = [datatype for datatype in Datatype if datatype is not Datatype.BYTES]
FLOATS = {Datatype.FP16, Datatype.FP32, Datatype.FP64, Datatype.BF16}


def read(*inputs: WarmupInput, rows: int = 1, batched: bool = True) -> list[Any]:
    """As a model with torch gets them, out of memory that was used before."""
    memory = mmap.mmap(-1, 4 * 1024**2)
    memory[:] = b"\xff" * len(memory)
    references, end = write_inputs(memory, WarmupRun(rows, 1, inputs), batched=batched)
    assert end == segments.aligned(sum(segments.aligned(reference.size_bytes) for reference in references))
    return [read_one(memory, reference) for reference in references]


def read_one(memory: mmap.mmap, reference: TensorReference) -> Any:
    value = TorchArrays("cpu").read(SharedMemory(memory), reference)
    return value if isinstance(value, list) else value.clone()


@pytest.mark.parametrize("datatype", NUMBERS)
def test_zeros_are_the_default(datatype: Datatype) -> None:
    (found,) = read(WarmupInput("x", datatype, (3, 2)), rows=2)
    assert found.shape == (2, 3, 2)
    assert not found.to(torch.float64).any()


@pytest.mark.parametrize("datatype", NUMBERS)
def test_random_is_the_same_each_time_and_small(datatype: Datatype) -> None:
    (found,) = read(WarmupInput("x", datatype, (1000,), Fill.RANDOM), rows=3)
    (again,) = read(WarmupInput("x", datatype, (1000,), Fill.RANDOM), rows=3)
    assert torch.equal(found, again)
    values = found.to(torch.float64)
    assert values.min() >= 0
    assert values.max() <= (1 if datatype in FLOATS or datatype is Datatype.BOOL else 9)
    assert 1 < len(values.unique()) <= (3000 if datatype in FLOATS else 10)
    assert not torch.equal(found[0], found[1])


@pytest.mark.parametrize("datatype", NUMBERS)
def test_values_are_repeated(datatype: Datatype) -> None:
    values = (True, False, True) if datatype is Datatype.BOOL else (1, 2, 3)
    (found,) = read(WarmupInput("x", datatype, (4,), values=values), rows=2)
    assert found.tolist() == [[*values, values[0]], [*values[1:], *values[:2]]]


def test_the_largest_values_are_kept() -> None:
    large = {Datatype.FP16: 65504.0, Datatype.BF16: 3.3895313892515355e38, Datatype.UINT64: 2**64 - 1}
    for datatype, value in large.items():
        (found,) = read(WarmupInput("x", datatype, (1,), values=(value,)))
        assert found.tolist() == [[value]]


def test_texts_are_repeated() -> None:
    (found,) = read(WarmupInput("x", Datatype.BYTES, (2,), values=("a", "", "\u00e9")), rows=2)
    assert found == [b"a", b"", "\u00e9".encode(), b"a"]


def test_texts_are_empty_by_default() -> None:
    assert read(WarmupInput("x", Datatype.BYTES, (2,)), rows=2) == [[b""] * 4]


def test_without_a_batch_axis_the_shape_is_the_models() -> None:
    matrix, scalar = read(
        WarmupInput("x", Datatype.FP32, (2, 3)), WarmupInput("k", Datatype.INT64, (), values=(7,)), batched=False
    )
    assert matrix.shape == (2, 3)
    assert scalar.item() == 7


def test_several_inputs_do_not_overlap() -> None:
    first, text, empty, last = read(
        WarmupInput("first", Datatype.UINT8, (5,), values=(1,)),
        WarmupInput("text", Datatype.BYTES, (1,), values=("long enough to need several blocks" * 3,)),
        WarmupInput("empty", Datatype.FP32, (0,)),
        WarmupInput("last", Datatype.FP32, (5,), values=(2.5,)),
        rows=3,
    )
    assert first.unique().tolist() == [1]
    assert {len(element) for element in text} == {102}
    assert empty.shape == (3, 0)
    assert last.unique().tolist() == [2.5]


def test_more_than_a_block_is_filled_to_its_end() -> None:
    (found,) = read(WarmupInput("x", Datatype.FP32, (900_001,), values=(1, 2, 3)))
    assert np.array_equal(found[0].numpy(), np.resize(np.array([1, 2, 3], np.float32), 900_001))
