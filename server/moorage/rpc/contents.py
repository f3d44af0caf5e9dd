"""The typed encoding of tensors: protobuf's repeated fields on one side, little-endian bytes on the other."""

import asyncio
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from moorage.domain.errors import InvalidRequest
from moorage.domain.tensor import Datatype
from moorage.rpc.signature import InputRule
from moorage.rpc.wire import Buffer
from moorage_protocol import inference as pb

CHUNK_ELEMENTS = 16 * 1024
"""Elements converted or inspected between two turns of the event loop: about a millisecond."""

_length = struct.Struct("<I")


class _Field(NamedTuple):
    """Which field of InferTensorContents a datatype uses. wire: how NumPy reads it; item: how a tensor holds it."""

    name: str
    wire: str = ""
    item: str = ""


_FIELDS = {
    Datatype.BOOL: _Field("bool_contents", "<u1", "<u1"),
    Datatype.UINT8: _Field("uint_contents", "<u4", "<u1"),
    Datatype.UINT16: _Field("uint_contents", "<u4", "<u2"),
    Datatype.UINT32: _Field("uint_contents", "<u4", "<u4"),
    Datatype.UINT64: _Field("uint64_contents", "<u8", "<u8"),
    Datatype.INT8: _Field("int_contents", "<i4", "<i1"),
    Datatype.INT16: _Field("int_contents", "<i4", "<i2"),
    Datatype.INT32: _Field("int_contents", "<i4", "<i4"),
    Datatype.INT64: _Field("int64_contents", "<i8", "<i8"),
    Datatype.FP32: _Field("fp32_contents", "<f4", "<f4"),
    Datatype.FP64: _Field("fp64_contents", "<f8", "<f8"),
    Datatype.BYTES: _Field("bytes_contents"),
}
"""No FP16 and no BF16: the protocol has no typed field for them."""


def has_typed_form(datatype: Datatype) -> bool:
    """Whether tensors of this datatype can be sent as typed contents at all."""
    return datatype in _FIELDS


def typed_values(rule: InputRule, contents: pb.InferTensorContents, elements: int) -> Sequence[Any]:
    """The repeated field that holds the input's elements.

    Raises InvalidRequest when the datatype has none, when another one is filled, or when the number is not right.
    """
    field = _FIELDS.get(rule.datatype)
    filled = [descriptor.name for descriptor, _ in contents.ListFields()]
    if field is None:
        if filled or elements:
            expected = f"{elements} elements in raw_input_contents, as {rule.datatype_text} has no typed field"
            raise InvalidRequest(f"{rule.field} contents", expected=expected, got=", ".join(filled) or "no data")
        return ()
    others = [name for name in filled if name != field.name]
    if others:
        expected = f"{rule.datatype_text} elements in {field.name}"
        raise InvalidRequest(f"{rule.field} contents", expected=expected, got=f"data in {', '.join(others)}")
    values: Sequence[Any] = getattr(contents, field.name)
    if len(values) != elements:
        expected = f"{elements} elements in {field.name}"
        raise InvalidRequest(f"{rule.field} contents", expected=expected, got=str(len(values)))
    return values


async def pack(rule: InputRule, values: Sequence[Any]) -> Buffer:
    """The bytes of a tensor from its typed elements, at least one.

    Raises InvalidRequest when a number does not fit the datatype. Gives way to other work after every chunk.
    """
    if len(values) <= CHUNK_ELEMENTS:
        return _pack_chunk(rule, values, 0)
    chunks: list[bytes] = []
    for start in range(0, len(values), CHUNK_ELEMENTS):
        chunks.append(_pack_chunk(rule, values[start : start + CHUNK_ELEMENTS], start))
        await asyncio.sleep(0)
    return b"".join(chunks)


def _pack_chunk(rule: InputRule, values: Sequence[Any], start: int) -> bytes:
    if rule.datatype is Datatype.BYTES:
        return pack_elements(values)
    field = _FIELDS[rule.datatype]
    array = np.fromiter(values, dtype=field.wire, count=len(values))
    if field.wire == field.item:
        return array.tobytes()
    limits = np.iinfo(field.item)
    misfits = np.flatnonzero((array < limits.min) | (array > limits.max))
    if misfits.size:
        expected = f"a number from {limits.min} to {limits.max}"
        where = f"{rule.field} {field.name}[{start + int(misfits[0])}]"
        raise InvalidRequest(where, expected=expected, got=str(array[misfits[0]]))
    return array.astype(field.item).tobytes()


def pack_elements(elements: Iterable[bytes]) -> bytes:
    """A BYTES tensor: each element's length in four bytes, then the element."""
    return b"".join([part for element in elements for part in (_length.pack(len(element)), element)])


def unpack_elements(data: Buffer, count: int) -> Iterator[bytes]:
    """The elements of a BYTES tensor that is known to be well formed."""
    position = 0
    for _ in range(count):
        (length,) = _length.unpack_from(data, position)
        position += _length.size + length
        yield bytes(data[position - length : position])


def fill(contents: pb.InferTensorContents, datatype: Datatype, data: Buffer, elements: int) -> None:
    """Put a tensor's bytes into the field of its datatype. The datatype must have a typed form."""
    field = _FIELDS[datatype]
    contents.SetInParent()  # an empty tensor is told to be typed by the presence of its contents
    if not elements:
        return
    if datatype is Datatype.BYTES:
        contents.bytes_contents.extend(unpack_elements(data, elements))
    else:
        numbers = np.frombuffer(data, dtype=field.item)
        getattr(contents, field.name).extend(
            numbers.astype(bool).tolist() if datatype is Datatype.BOOL else numbers.tolist()
        )
