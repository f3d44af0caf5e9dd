"""Arrays travel and come back as they were; what can't be right is refused by name."""

import sys
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from moorage_client.errors import InvalidRequest, InvalidResponse
from moorage_client.tensors import Array, BFloat16, datatype_of, decode, dtype_of, encode

NUMERIC = {
    "BOOL": "bool",
    "UINT8": "uint8",
    "UINT16": "uint16",
    "UINT32": "uint32",
    "UINT64": "uint64",
    "INT8": "int8",
    "INT16": "int16",
    "INT32": "int32",
    "INT64": "int64",
    "FP16": "float16",
    "FP32": "float32",
    "FP64": "float64",
}
SHAPES = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)


def round_trip(value: Any) -> Array:
    tensor = encode("x", value)
    return decode("x", tensor.datatype, tensor.shape, tensor.data)


@given(st.sampled_from(sorted(NUMERIC.items())).flatmap(lambda item: hnp.arrays(np.dtype(item[1]), SHAPES)))
def test_numeric_arrays_come_back_bit_for_bit(array: Array) -> None:
    back = round_trip(array)
    assert back.shape == array.shape
    assert back.dtype == array.dtype
    assert back.tobytes() == array.tobytes()


@given(hnp.arrays(np.dtype(object), SHAPES, elements=st.binary(max_size=9)))
def test_bytes_arrays_come_back_bit_for_bit(array: Array) -> None:
    back = round_trip(array)
    assert back.shape == array.shape
    assert back.tolist() == array.tolist()


@pytest.mark.parametrize(("datatype", "name"), sorted(NUMERIC.items()))
def test_every_datatype_has_its_dtype(datatype: str, name: str) -> None:
    assert datatype_of(np.zeros(1, name)) == datatype
    assert dtype_of(datatype) == np.dtype(name)


@pytest.mark.parametrize(
    ("value", "elements"),
    [
        (["a\0", "ü"], [b"a\0", "ü".encode()]),
        ([b"a\0\0", b""], [b"a\0\0", b""]),
        (np.array(["one", "two"]), [b"one", b"two"]),
        (np.array([b"one", b"two"]), [b"one", b"two"]),
        (np.array(["mixed", b"\xff"], dtype=object), [b"mixed", b"\xff"]),
    ],
)
def test_text_is_sent_as_utf8_and_keeps_its_zero_bytes(value: Any, elements: list[bytes]) -> None:
    assert round_trip(value).tolist() == elements


def test_a_text_alone_is_a_scalar() -> None:
    back = round_trip("alone")
    assert back.shape == ()
    assert back[()] == b"alone"


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12, dtype=np.float32).reshape(3, 4).T,
        np.arange(12, dtype=np.float32)[::-2],
        np.arange(6, dtype=">i4").reshape(2, 3),
        np.asfortranarray(np.arange(6, dtype=np.int16).reshape(2, 3)),
    ],
)
def test_memory_layout_does_not_matter(array: Array) -> None:
    assert np.array_equal(round_trip(array), array)


def test_bytes_of_a_transposed_array_are_row_major() -> None:
    array = np.array([[b"a", b"b"], [b"c", b"d"]], dtype=object).T
    assert round_trip(array).tolist() == [[b"a", b"c"], [b"b", b"d"]]


@given(hnp.arrays(np.dtype(np.float32), SHAPES, elements=st.floats(width=32)))
def test_bfloat16_with_and_without_ml_dtypes_are_the_same_bytes(floats: Array) -> None:
    ours = encode("x", BFloat16.from_floats(floats))
    with np.errstate(all="ignore"):
        theirs = encode("x", floats.astype(ml_dtypes.bfloat16))
    assert ours.datatype == theirs.datatype == "BF16"
    assert ours.shape == theirs.shape
    nan = np.isnan(floats).ravel()  # a NaN has many patterns
    ours_bits, theirs_bits = (np.frombuffer(tensor.data, np.uint16) for tensor in (ours, theirs))
    assert np.array_equal(ours_bits[~nan], theirs_bits[~nan])
    assert np.isnan(decode("x", ours.datatype, ours.shape, ours.data).astype(np.float32)).sum() == nan.sum()


def test_bfloat16_comes_back_as_ml_dtypes_where_installed() -> None:
    assert round_trip(BFloat16.from_floats([1.5, -2.0])).dtype == ml_dtypes.bfloat16


def test_bfloat16_comes_back_as_bits_without_ml_dtypes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    back = round_trip(BFloat16.from_floats([1.5]))
    assert back.dtype == np.uint16
    assert back.tolist() == [0x3FC0]


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (np.zeros(2, np.complex64), "complex64"),
        (np.zeros(2, "datetime64[s]"), "datetime64"),
        (np.array([1, "a"], dtype=object), "got int"),
        ([[1, 2], [3]], "inhomogeneous"),
    ],
)
def test_what_cannot_be_sent_names_the_input(value: Any, says: str) -> None:
    with pytest.raises(InvalidRequest, match=f"'audio'.*{says}"):
        encode("audio", value)


@pytest.mark.parametrize(
    ("datatype", "shape", "data"),
    [
        ("FP32", [2], b"\0" * 7),
        ("FP32", [-1], b"\0" * 4),
        ("FP99", [1], b"\0" * 4),
        ("FP32", [0, 2**62, 2**62], b""),
        ("FP32", [1] * 70, b"\0" * 4),
        ("BYTES", [2], b"\1\0\0\0a"),
        ("BYTES", [1], b"\5\0\0\0a"),
        ("BYTES", [1], b"\1\0\0\0ab"),
        ("BYTES", [2], b"\4\0\0\0abcd\1"),
        ("BYTES", [2**60], b""),
    ],
)
def test_an_answer_that_contradicts_itself_names_the_output(datatype: str, shape: list[int], data: bytes) -> None:
    with pytest.raises(InvalidResponse, match="'scores'"):
        decode("scores", datatype, shape, data)


@given(st.lists(st.integers(0, 5), max_size=3), st.binary(max_size=40))
def test_any_bytes_are_decoded_or_refused(shape: list[int], data: bytes) -> None:
    try:
        array = decode("x", "BYTES", shape, data)
    except InvalidResponse:
        return
    assert encode("x", array).data == data


def test_a_bool_is_true_whatever_bit_is_set() -> None:
    assert decode("x", "BOOL", [3], b"\0\1\2").tolist() == [False, True, True]
