"""B05: sixteen-bit floats travel bit for bit and are computed natively; truth values are 0 or 1 and nothing else."""

import struct
from typing import Any

import pytest
import torch

from tests.integration.cases.conftest import SharedServer
from tests.support.calls import Tensor, request_of

# One, minus zero, the smallest subnormal, both infinities, a NaN with a payload, the largest finite, its negative.
_PATTERNS = {
    "FP16": (0x3C00, 0x8000, 0x0001, 0x7C00, 0xFC00, 0x7D55, 0xFE01, 0x7BFF, 0xFBFF),
    "BF16": (0x3F80, 0x8000, 0x0001, 0x7F80, 0xFF80, 0x7FA5, 0xFFC1, 0x7F7F, 0xFF7F),
}
_DTYPES = {"FP16": torch.float16, "BF16": torch.bfloat16}


@pytest.mark.parametrize("datatype", _PATTERNS)
def test_every_bit_pattern_comes_back(watched: SharedServer, datatype: str) -> None:
    patterns = _PATTERNS[datatype]
    raw = struct.pack(f"<{len(patterns)}H", *patterns)
    response = watched.calls.infer(request_of(f"line_{datatype.lower()}", Tensor([len(patterns)], raw, datatype)))
    assert response.outputs[0].datatype == datatype
    assert response.raw_output_contents[0] == raw


@pytest.mark.parametrize("datatype", _PATTERNS)
def test_all_65536_patterns_come_back(watched: SharedServer, datatype: str) -> None:
    raw = struct.pack("<65536H", *range(65536))
    response = watched.calls.infer(request_of(f"line_{datatype.lower()}", Tensor([65536], raw, datatype)))
    assert response.raw_output_contents[0] == raw


@pytest.mark.parametrize("datatype", _PATTERNS)
def test_arithmetic_is_that_of_the_type(watched: SharedServer, datatype: str) -> None:
    x = torch.tensor([[0.01, 1 / 3, 60000.0, -0.0]], dtype=_DTYPES[datatype])
    raw = x.view(torch.int16).numpy().tobytes()
    response = watched.calls.infer(request_of(f"double_{datatype.lower()}", Tensor([1, 4], raw, datatype)))
    assert response.raw_output_contents[0] == (x + x).view(torch.int16).numpy().tobytes()


@pytest.mark.parametrize("datatype", _PATTERNS)
@pytest.mark.parametrize("field", ["fp32_contents", "uint_contents", "bytes_contents"])
def test_typed_contents_are_refused(watched: SharedServer, datatype: str, field: str) -> None:
    contents: dict[str, list[Any]] = {"fp32_contents": [1.0], "uint_contents": [1], "bytes_contents": [b"\0\0"]}
    tensor = Tensor([1], None, datatype, typed={field: contents[field]})
    failed = watched.calls.failure(request_of(f"line_{datatype.lower()}", tensor))
    assert failed.code == "INVALID_ARGUMENT"
    assert "raw_input_contents" in failed.message


@pytest.mark.parametrize("byte", [2, 128, 255])
def test_a_truth_value_is_zero_or_one(watched: SharedServer, byte: int) -> None:
    """Always refused, never normalised."""
    failed = watched.calls.failure(request_of("line_bool", Tensor([4], bytes([0, 1, byte, 1]), "BOOL")))
    assert failed.code == "INVALID_ARGUMENT"
    assert str(byte) in failed.message
    good = watched.calls.infer(request_of("line_bool", Tensor([2], b"\0\1", "BOOL")))
    assert good.raw_output_contents[0] == b"\0\1"
