"""The value that model.toml declares an input to be padded with."""

import math
from typing import Annotated

from pydantic import PlainValidator

from moorage.domain.tensor import Datatype, Element
from moorage.repository.quoting import shown
from moorage.repository.ranges import LARGEST_FLOATS, integers_of

EXPECTED_PADDING = "a number, true or false"


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
    if datatype not in LARGEST_FLOATS:
        least, most = integers_of(datatype)
        fits = isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
        return None if fits else f"an integer from {least} to {most}"
    largest = LARGEST_FLOATS[datatype]
    # Comparisons of int and float are exact, and take an int that is too large for a float.
    fits = not isinstance(value, bool) and (-largest <= value <= largest or not _is_finite(value))
    return None if fits else f"a number from {-largest:g} to {largest:g}, inf or nan"


def as_element(value: Element, datatype: Datatype) -> Element:
    """The value in the type that the datatype's elements have in Python."""
    return float(value) if datatype in LARGEST_FLOATS else value


def _is_finite(value: Element) -> bool:
    return isinstance(value, int) or math.isfinite(value)
