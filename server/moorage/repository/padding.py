"""The value that model.toml declares an input to be padded with."""

import math
import sys
from typing import Annotated

from pydantic import PlainValidator

from moorage.domain.tensor import Datatype, Element
from moorage.repository.quoting import shown

EXPECTED_PADDING = "a number, true or false"

_INTEGERS = {
    Datatype.UINT8: (0, 2**8 - 1),
    Datatype.UINT16: (0, 2**16 - 1),
    Datatype.UINT32: (0, 2**32 - 1),
    Datatype.UINT64: (0, 2**64 - 1),
    Datatype.INT8: (-(2**7), 2**7 - 1),
    Datatype.INT16: (-(2**15), 2**15 - 1),
    Datatype.INT32: (-(2**31), 2**31 - 1),
    Datatype.INT64: (-(2**63), 2**63 - 1),
}
_LARGEST_FLOATS = {
    Datatype.FP16: 65504.0,
    Datatype.BF16: (2 - 2**-7) * 2.0**127,
    Datatype.FP32: (2 - 2**-23) * 2.0**127,
    Datatype.FP64: sys.float_info.max,
}


def parse_padding(value: object) -> Element:
    """Raises ValueError for what is a value of no datatype, saying what was expected and what came."""
    if not isinstance(value, bool | int | float):
        raise ValueError(f"expected {EXPECTED_PADDING}, got {shown(value)}")
    return value


Padding = Annotated[Element, PlainValidator(parse_padding)]


def expected_padding(value: Element, datatype: Datatype) -> str | None:
    """What is expected of a value that is none of the datatype; None where it is one."""
    if datatype is Datatype.BYTES:
        return "no padding of BYTES, which come as lists"
    if datatype is Datatype.BOOL:
        return None if isinstance(value, bool) else "true or false"
    if datatype in _INTEGERS:
        least, most = _INTEGERS[datatype]
        fits = isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
        return None if fits else f"an integer from {least} to {most}"
    largest = _LARGEST_FLOATS[datatype]
    # Comparisons of int and float are exact, and take an int that is too large for a float.
    fits = not isinstance(value, bool) and (-largest <= value <= largest or not _is_finite(value))
    return None if fits else f"a number from {-largest:g} to {largest:g}, inf or nan"


def as_element(value: Element, datatype: Datatype) -> Element:
    """The value in the type that the datatype's elements have in Python."""
    return float(value) if datatype in _LARGEST_FLOATS else value


def _is_finite(value: Element) -> bool:
    return isinstance(value, int) or math.isfinite(value)
