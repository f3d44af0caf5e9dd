"""Which numbers an element of a datatype can be, for values that stand in model.toml."""

import sys

from moorage.domain.tensor import Datatype

LARGEST_FLOATS = {
    Datatype.FP16: 65504.0,
    Datatype.BF16: (2 - 2**-7) * 2.0**127,
    Datatype.FP32: (2 - 2**-23) * 2.0**127,
    Datatype.FP64: sys.float_info.max,
}


def integers_of(datatype: Datatype) -> tuple[int, int]:
    """The least and the largest of an integer datatype."""
    bits = 8 * datatype.item_bytes
    return (0, 2**bits - 1) if datatype.startswith("U") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
