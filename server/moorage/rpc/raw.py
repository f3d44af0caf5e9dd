"""The raw encoding of tensors: whether bytes are what their datatype and shape say."""

import asyncio
import struct

import numpy as np

from moorage.domain.errors import InvalidRequest
from moorage.domain.tensor import Datatype
from moorage.rpc.contents import CHUNK_ELEMENTS
from moorage.rpc.signature import InputRule
from moorage.rpc.wire import Buffer

_BOOL_CHUNK_BYTES = 1024 * 1024
_length = struct.Struct("<I")


def check_size(rule: InputRule, data: Buffer, elements: int) -> None:
    """Compare the number of bytes with what the shape asks for. Raises InvalidRequest."""
    least = elements * rule.item_bytes
    if len(data) == least or (rule.datatype is Datatype.BYTES and elements and len(data) > least):
        return
    more = " or more, four for each element's length" if rule.datatype is Datatype.BYTES and elements else ""
    expected = f"{least} bytes{more} ({elements} elements of {rule.datatype_text})"
    raise InvalidRequest(f"{rule.field} raw data", expected=expected, got=f"{len(data)} bytes")


async def inspect(rule: InputRule, data: Buffer, elements: int) -> None:
    """Look at the bytes of a BOOL or BYTES tensor of the right size. Raises InvalidRequest.

    Small tensors are done at once; large ones give way to other work after every chunk.
    """
    if rule.datatype is Datatype.BOOL:
        await _inspect_booleans(rule, data)
    else:
        await _inspect_elements(rule, data, elements)


async def _inspect_booleans(rule: InputRule, data: Buffer) -> None:
    for start in range(0, len(data), _BOOL_CHUNK_BYTES):
        if start:
            await asyncio.sleep(0)
        chunk = np.frombuffer(data, np.uint8, min(_BOOL_CHUNK_BYTES, len(data) - start), start)
        if chunk.max() > 1:
            first = int(np.flatnonzero(chunk > 1)[0])
            raise InvalidRequest(f"{rule.field} raw data[{start + first}]", expected="0 or 1", got=str(chunk[first]))


async def row_ends(rule: InputRule, data: Buffer, elements: int, rows: int) -> tuple[int, ...]:
    """Where each row of a well-formed BYTES tensor ends. Gives way to other work as `inspect` does."""
    if not elements:
        return (0,) * rows
    each = elements // rows
    ends: list[int] = []
    position = since_pause = 0
    for first in range(0, elements, each):
        for start in range(first, first + each, CHUNK_ELEMENTS):
            count = min(CHUNK_ELEMENTS, first + each - start)
            since_pause += count
            if since_pause > CHUNK_ELEMENTS:
                since_pause = count
                await asyncio.sleep(0)
            position = _skip_elements(rule, data, position, start, count)
        ends.append(position)
    return tuple(ends)


async def _inspect_elements(rule: InputRule, data: Buffer, elements: int) -> None:
    position = 0
    for start in range(0, elements, CHUNK_ELEMENTS):
        if start:
            await asyncio.sleep(0)
        position = _skip_elements(rule, data, position, start, min(CHUNK_ELEMENTS, elements - start))
    if position != len(data):
        expected = f"{position} bytes, by the lengths of its {elements} elements"
        raise InvalidRequest(f"{rule.field} raw data", expected=expected, got=f"{len(data)} bytes")


def _skip_elements(rule: InputRule, data: Buffer, position: int, first: int, count: int) -> int:
    """Where the element after these begins."""
    read, size, end = _length.unpack_from, _length.size, len(data)
    for index in range(first, first + count):
        if position + size > end:
            raise InvalidRequest(
                f"{rule.field} raw data, element {index}",
                expected="four bytes of length",
                got=f"{end - position} bytes",
            )
        (length,) = read(data, position)
        position += size + length
        if position > end:
            left = end - position + length
            raise InvalidRequest(
                f"{rule.field} raw data, element {index}",
                expected=f"{length} bytes, by its length",
                got=f"{left} bytes",
            )
    return position
