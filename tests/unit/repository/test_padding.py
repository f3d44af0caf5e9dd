"""Inputs that may vary within a run, as model.toml declares them."""

import math
from pathlib import Path

import pytest

from moorage.domain.tensor import Element, TensorSpec
from moorage.repository.errors import ManifestError
from moorage.repository.files import FileSummary
from moorage.repository.manifest import parse_manifest
from moorage.repository.specs import spec_of

MANIFEST = """
runtime = "python"
max_batch_size = {rows}
inputs = [{{ name = "x", datatype = "{datatype}", shape = {shape}, {how} }}]
outputs = [{{ name = "y", datatype = "FP32", shape = [1] }}]
"""


def manifest(how: str, datatype: str = "FP32", shape: str = "[-1]", rows: int = 8) -> bytes:
    return MANIFEST.format(how=how, datatype=datatype, shape=shape, rows=rows).encode()


def declared(content: bytes) -> TensorSpec:
    (tensor,) = spec_of(parse_manifest(content, "m"), "m", 1, Path("m"), FileSummary("", 0)).inputs
    return tensor


def problem(content: bytes) -> str:
    with pytest.raises(ManifestError) as caught:
        parse_manifest(content, "m")
    (line,) = caught.value.problems
    return line.removeprefix("model.toml: inputs[0]")


@pytest.mark.parametrize("datatype", ["FP32", "BYTES"])
def test_ragged_is_read(datatype: str) -> None:
    tensor = declared(manifest("ragged = true", datatype))
    assert (tensor.ragged, tensor.padding, tensor.varies) == (True, None, True)
    plain = declared(manifest("ragged = false", datatype))
    assert (plain.ragged, plain.padding, plain.varies) == (False, None, False)


@pytest.mark.parametrize(
    ("datatype", "text", "value"),
    [
        ("BOOL", "false", False),
        ("UINT8", "255", 255),
        ("UINT64", "0xffffffffffffffff", 2**64 - 1),
        ("INT64", "-9223372036854775808", -(2**63)),
        ("FP16", "-65504.0", -65504.0),
        ("BF16", "3.3895313892515355e38", 3.3895313892515355e38),
        ("FP32", "0", 0.0),
        ("FP32", "-inf", -math.inf),
        ("FP64", "1e308", 1e308),
        ("FP64", "1" + "0" * 300, 1e300),
    ],
)
def test_padding_of_every_kind_is_read(datatype: str, text: str, value: Element) -> None:
    tensor = declared(manifest(f"padding = {text}", datatype))
    assert (tensor.padding, type(tensor.padding)) == (value, type(value))
    assert tensor.varies
    assert not tensor.ragged


@pytest.mark.parametrize(
    ("datatype", "text", "line"),
    [
        ("BOOL", "0", ".padding: expected true or false, as datatype = 'BOOL', got 0"),
        (
            "INT32",
            "false",
            ".padding: expected an integer from -2147483648 to 2147483647, as datatype = 'INT32', got F",
        ),
        ("INT64", "0.0", ".padding: expected an integer from -9223372036854775808 to 9223372036854775807, as datatype"),
        ("UINT8", "256", ".padding: expected an integer from 0 to 255, as datatype = 'UINT8', got 256"),
        ("UINT8", "-1", ".padding: expected an integer from 0 to 255, as datatype = 'UINT8', got -1"),
        (
            "FP16",
            "65505.0",
            ".padding: expected a number from -65504 to 65504, inf or nan, as datatype = 'FP16', got 6",
        ),
        ("FP32", "true", ".padding: expected a number from -3.40282e+38 to 3.40282e+38, inf or nan, as datatype = 'FP"),
        ("FP64", "1" + "0" * 400, ".padding: expected a number from -1.79769e+308 to 1.79769e+308, inf or nan, as"),
        ("BYTES", "0", ".padding: expected no padding of BYTES, which come as lists, as datatype = 'BYTES', got 0"),
        ("FP32", '"0"', ".padding: expected a number, true or false, got '0'"),
        ("FP32", "[0]", ".padding: expected a number, true or false, got [0]"),
    ],
)
def test_a_padding_that_is_no_value_of_the_datatype(datatype: str, text: str, line: str) -> None:
    assert problem(manifest(f"padding = {text}", datatype)).startswith(line)


@pytest.mark.parametrize("how", ["ragged = true", "padding = 0"])
def test_both_need_a_batch_axis_and_a_free_dimension(how: str) -> None:
    key = how.partition(" ")[0]
    expected = f".{key}: expected only with max_batch_size above 0, got max_batch_size = 0"
    assert problem(manifest(how, rows=0)) == expected
    assert problem(manifest(how, shape="[3, 4]")) == f".{key}: expected only with a dimension of -1, got shape = [3, 4]"
    assert declared(manifest(how, shape="[3, -1, 4, -1]")).varies


def test_an_input_is_ragged_or_padded() -> None:
    line = problem(manifest("ragged = true, padding = 0"))
    assert line == ": expected either ragged or padding, got ragged = true and padding = 0"
    assert problem(manifest("ragged = 1")) == ".ragged: expected true or false, got 1"


def test_outputs_are_neither() -> None:
    content = manifest("optional = false").replace(b'"FP32", shape = [1] }', b'"FP32", shape = [-1], ragged = true }')
    with pytest.raises(ManifestError, match=r"outputs\[0\]: unknown key 'ragged'"):
        parse_manifest(content, "m")
