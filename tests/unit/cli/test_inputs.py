"""What was typed becomes what the model declares, or is refused by name."""

import json
from typing import Any

import numpy as np
import pytest

from moorage.cli.arrays import InputError, from_array
from moorage.cli.inputs import Sources, fit_shape, from_nested, from_texts, tensors
from moorage.cli.outputs import as_json, as_text
from moorage.cli.sizes import format_bytes
from moorage_client import BFloat16, ModelMetadata, TensorMetadata
from moorage_client.tensors import Array


@pytest.mark.parametrize(
    ("shape", "declared", "fitted"),
    [
        ((2, 3), (-1, 3), (2, 3)),
        ((3,), (-1, 3), (1, 3)),
        ((6,), (-1, 3), (2, 3)),
        ((7,), (-1, 3), None),
        ((5,), (-1, -1), (1, 5)),
        ((2, 2), (-1, 3), None),
        ((), (), ()),
        ((), (-1,), (1,)),
        ((4,), (2, 2), None),
        ((0,), (-1, 3), (0, 3)),
    ],
)
def test_shapes(shape: tuple[int, ...], declared: tuple[int, ...], fitted: tuple[int, ...] | None) -> None:
    assert fit_shape(shape, declared) == fitted


@pytest.mark.parametrize(
    ("declared", "count", "shape"),
    [
        ((-1, 1), 1, (1, 1)),
        ((-1, 1), 3, (3, 1)),
        ((-1, -1), 3, (3, 1)),
        ((-1,), 3, (3,)),
        ((2,), 2, (2,)),
        ((1,), 1, (1,)),
    ],
)
def test_a_row_per_text(declared: tuple[int, ...], count: int, shape: tuple[int, ...]) -> None:
    assert from_texts(TensorMetadata("text", "BYTES", declared), ["t"] * count).shape == shape


def test_more_texts_than_fit() -> None:
    with pytest.raises(InputError, match="3 texts don't fit"):
        from_texts(TensorMetadata("text", "BYTES", (1,)), ["t"] * 3)


@pytest.mark.parametrize(
    ("datatype", "value", "dtype"),
    [
        ("FP32", [1, 2.5], np.float32),
        ("FP16", [1, 2], np.float16),
        ("INT64", [1, -2], np.int64),
        ("UINT64", [2**64 - 1, 0], np.uint64),
        ("UINT8", [True, 255], np.uint8),
        ("BOOL", [True, False], np.bool_),
        ("BYTES", ["a", "b"], object),
    ],
)
def test_numbers_take_the_declared_datatype(datatype: str, value: list[Any], dtype: Any) -> None:
    array = from_nested(TensorMetadata("x", datatype, (2,)), value)
    assert isinstance(array, np.ndarray)
    assert array.dtype == dtype
    assert array.tolist() == value


def test_bfloat16_without_a_package_for_it() -> None:
    tensor = from_nested(TensorMetadata("x", "BF16", (2,)), [1, 1.5])
    assert isinstance(tensor, BFloat16)
    assert tensor.bits.tolist() == [0x3F80, 0x3FC0]


@pytest.mark.parametrize(
    ("datatype", "value"),
    [
        ("INT32", [1.5, 2.0]),
        ("UINT8", [256, 0]),
        ("INT64", [2**63, 0]),
        ("BOOL", [0, 1]),
        ("FP32", ["1", "2"]),
        ("FP32", [None, 1]),
        ("FP32", [[1], [1, 2]]),
        ("FP99", [1, 2]),
        ("BYTES", [["a"], ["b", "c"]]),
    ],
)
def test_what_is_not_meant_is_refused(datatype: str, value: list[Any]) -> None:
    with pytest.raises(InputError, match="'x'"):
        from_nested(TensorMetadata("x", datatype, (2,)), value)


@pytest.mark.parametrize(
    ("datatype", "value", "says"),
    [
        ("FP32", [[1, 2], [3]], "lists are ragged"),
        ("FP32", [[[1]], [2]], "lists are ragged"),
        ("BYTES", [["a"], ["b", "c"]], "lists are ragged"),
        ("UINT8", [256, 0], "out of range for UINT8"),
        ("FP32", [1e39, 0], "out of range for FP32"),
        ("FP64", [10**400, 0], "out of range for FP64"),
        ("BF16", [1e39, 0], "out of range for BF16"),
    ],
)
def test_what_is_wrong_with_a_list_is_said_in_plain_words(datatype: str, value: list[Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        from_nested(TensorMetadata("x", datatype, (2,)), value)


@pytest.mark.parametrize(
    ("datatype", "array", "dtype"),
    [
        ("FP32", np.array([1.5, np.inf]), np.float32),
        ("FP32", np.array([1, 2]), np.float32),
        ("UINT8", np.array([0, 255]), np.uint8),
        ("INT64", np.array([1, 2], np.uint8), np.int64),
        ("FP32", np.array([1, 2], ">f4"), np.float32),
        ("INT8", np.zeros((0, 3), np.int64), np.int8),
        ("BYTES", np.array(["a", "bc"]), np.dtype("<U2")),
    ],
)
def test_arrays_take_the_declared_datatype(datatype: str, array: Array, dtype: Any) -> None:
    cast = from_array(TensorMetadata("x", datatype, (2,)), array)
    assert isinstance(cast, np.ndarray)
    assert cast.dtype == dtype
    assert cast.tolist() == array.tolist()


@pytest.mark.parametrize(
    ("datatype", "array", "says"),
    [
        ("INT32", np.array([1.0]), "expected INT32, got an array of float64"),
        ("FP32", np.array([True]), "expected FP32, got an array of bool"),
        ("BYTES", np.array([1]), "expected BYTES, got an array of int64"),
        ("FP32", np.array(["1"]), "expected FP32, got an array of <U1"),
        ("UINT8", np.array([-1]), "out of range for UINT8"),
        ("INT64", np.array([2**63], np.uint64), "out of range for INT64"),
        ("FP16", np.array([1e5]), "out of range for FP16"),
        ("FP16", np.array([10**5]), "out of range for FP16"),
    ],
)
def test_arrays_of_another_kind_or_range_are_refused(datatype: str, array: Array, says: str) -> None:
    with pytest.raises(InputError, match=says):
        from_array(TensorMetadata("x", datatype, (1,)), array)


def metadata_of(*inputs: TensorMetadata) -> ModelMetadata:
    return ModelMetadata("m", ("1",), "python", inputs, ())


def test_texts_need_exactly_one_bytes_input() -> None:
    sources = Sources(("a",), {}, {})
    with pytest.raises(InputError, match="it has none"):
        tensors(metadata_of(), sources)
    two = [TensorMetadata(name, "BYTES", (-1,)) for name in ("a", "b")]
    with pytest.raises(InputError, match="it has a, b"):
        tensors(metadata_of(*two), sources)


def test_an_input_given_twice() -> None:
    metadata = metadata_of(TensorMetadata("text", "BYTES", (-1,)))
    with pytest.raises(InputError, match="twice"):
        tensors(metadata, Sources(("a",), {"text": ["b"]}, {}))


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (2 << 30, "2 GiB"),
        (1024**2 - 1, "1 MiB"),
        (5 << 50, "5120 TiB"),
    ],
)
def test_sizes(size_bytes: int, text: str) -> None:
    assert format_bytes(size_bytes) == text


@pytest.mark.parametrize(
    ("array", "says"),
    [
        (np.zeros((2, 384), np.float32), "FP32 [2, 384]\n[[0. 0. 0. ... 0. 0. 0.]"),
        (np.float32(2.5).reshape(()), "FP32 []\n2.5"),
        (np.zeros((0, 3), np.int64), "INT64 [0, 3]\n[]"),
        (np.zeros(0, object), "BYTES [0]\n[]"),
    ],
)
def test_outputs_for_people_are_abbreviated(array: Array, says: str) -> None:
    assert as_text(metadata_of(), {"out": array}).startswith(f"out  {says}")


def test_outputs_for_machines_are_whole() -> None:
    assert as_json(metadata_of(), {"out": np.zeros((0, 3), object)}).endswith('"shape": [0, 3], "data": []}}}')
    assert as_json(metadata_of(), {"out": np.arange(500)}).count(",") > 500


def test_what_is_not_finite_is_named_as_json_has_no_number_for_it() -> None:
    halves = np.array([1.5, np.nan, np.inf, -np.inf], np.float16)
    document = json.loads(as_json(metadata_of(), {"out": halves}), parse_constant=pytest.fail)
    assert document["outputs"]["out"]["data"] == [1.5, "NaN", "Infinity", "-Infinity"]
