"""How much of a request protobuf may be asked to parse at once, decided by walking its wire format first.

Raw contents are cheap however large they are: bytes that are copied, or not even that. Fields are not: protobuf makes
an object of each on the event loop, in one go, and a field takes but two bytes of the wire. So a few MB of empty
elements would keep everybody else waiting for seconds. The walk itself ends at the bounds.
"""

from collections.abc import Iterator

from moorage.domain.errors import InvalidRequest

BOUNDED_FROM_BYTES = 64 * 1024
"""Shorter messages are parsed as they are: what fits them is parsed within about ten milliseconds."""
MAX_FIELDS = 4096
"""Of the request itself, each input and output being one."""
MAX_NESTED_FIELDS = 64 * 1024
"""Of all inputs, their contents, and outputs. Each BYTES element is one, and all numbers of a packed field are one."""
MAX_NUMBER_BYTES = 8 * 1024 * 1024
"""Of all typed contents together, BYTES elements aside: their bytes are only copied."""
MAX_OTHER_BYTES = 4 * 1024 * 1024
"""Of everything else but raw_input_contents: names, shapes, the id, parameters."""

_INPUTS = 5 << 3 | 2
_OUTPUTS = 6 << 3 | 2
_RAW_INPUT = 7 << 3 | 2
_CONTENTS = 5 << 3 | 2  # of an input
_ELEMENT = 8 << 3 | 2  # of its contents
_MAX_TAG_BYTES = 5
_MAX_VARINT_BYTES = 10
_FIXED_BYTES = {1: 8, 5: 4}  # by wire type; the groups of old, 3 and 4, are in no message of ours

_Field = tuple[int, int, int]
"""Its tag, where its value begins, and where it ends."""


class Malformed(Exception):
    """The bytes are no message, or one with groups."""


def check_bounds(body: bytes) -> None:
    """Compare a serialized ModelInferRequest with the bounds, in a few tens of milliseconds at most.

    Raises InvalidRequest where it is beyond one, and Malformed.
    """
    try:
        _Walk(body).request()
    except IndexError:
        raise Malformed from None


class _Walk:
    """One walk through one request. All of it raises InvalidRequest, Malformed, and IndexError at the bytes' end."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._nested = 0
        self._number_bytes = 0
        self._other_bytes = 0

    def request(self) -> None:
        for count, (tag, begin, end) in enumerate(_fields(self._body, 0, len(self._body)), 1):
            if count > MAX_FIELDS:
                raise _beyond("request", f"{MAX_FIELDS} inputs, outputs and other fields", count)
            if tag == _INPUTS:
                self._tensor(begin, end, _CONTENTS)
            elif tag == _OUTPUTS:
                self._tensor(begin, end, None)
            elif tag != _RAW_INPUT:
                self._other(end - begin)

    def _tensor(self, begin: int, end: int, contents: int | None) -> None:
        for tag, inner_begin, inner_end in _fields(self._body, begin, end):
            self._nested += 1
            if self._nested > MAX_NESTED_FIELDS:
                raise _beyond("request", f"{MAX_NESTED_FIELDS} fields in inputs and outputs", self._nested)
            if tag == contents:
                self._contents(inner_begin, inner_end)
            else:
                self._other(inner_end - inner_begin)

    def _contents(self, begin: int, end: int) -> None:
        position = self._elements(begin, end)
        for tag, inner_begin, inner_end in _fields(self._body, position, end):
            self._count(1)
            if tag != _ELEMENT:
                self._number_bytes += inner_end - inner_begin
            if self._number_bytes > MAX_NUMBER_BYTES:
                raise _beyond_contents(f"{MAX_NUMBER_BYTES} bytes of numbers", self._number_bytes)

    def _elements(self, position: int, end: int) -> int:
        """Skip the short BYTES elements that the contents begin with, and say where they end.

        The same as the walk by fields, at a fifth of its time.
        """
        body, room = self._body, MAX_NESTED_FIELDS - self._nested
        count = 0
        while position < end and body[position] == _ELEMENT and count <= room:
            length = body[position + 1]
            if length >= 0x80:
                break
            position += 2 + length
            count += 1
        if position > end:
            raise Malformed
        self._count(count)
        return position

    def _count(self, elements: int) -> None:
        self._nested += elements
        if self._nested > MAX_NESTED_FIELDS:
            raise _beyond_contents(f"{MAX_NESTED_FIELDS} elements and other fields", self._nested)

    def _other(self, size_bytes: int) -> None:
        self._other_bytes += size_bytes
        if self._other_bytes > MAX_OTHER_BYTES:
            raise _beyond("request", f"{MAX_OTHER_BYTES} bytes of names, shapes and parameters", self._other_bytes)


def _beyond(field: str, limit: str, reached: int) -> InvalidRequest:
    return InvalidRequest(field, expected=f"at most {limit}", got=f"{reached} or more")


def _beyond_contents(limit: str, reached: int) -> InvalidRequest:
    got = f"{reached} or more; send raw_input_contents"
    return InvalidRequest("input contents", expected=f"at most {limit} in typed contents", got=got)


def _fields(body: bytes, position: int, end: int) -> Iterator[_Field]:
    """The fields that stand between two positions. Raises Malformed, IndexError."""
    while position < end:
        tag = body[position]
        size = body[position + 1]
        if tag & 0x87 == 2 and size < 0x80:  # most are: a small number, and a short value of some length
            begin = position + 2
        else:
            tag, begin, size = _long_field(body, position)
        position = begin + size
        if position > end:
            raise Malformed
        yield tag, begin, position


def _long_field(body: bytes, position: int) -> _Field:
    """A field's tag, where its value begins, and the value's size."""
    tag, position = _varint(body, position, _MAX_TAG_BYTES)
    kind = tag & 7
    if kind == 2:
        size, position = _varint(body, position, _MAX_TAG_BYTES)
        return tag, position, size
    if kind == 0:
        _, end = _varint(body, position, _MAX_VARINT_BYTES)
        return tag, position, end - position
    if kind not in _FIXED_BYTES:
        raise Malformed
    return tag, position, _FIXED_BYTES[kind]


def _varint(body: bytes, position: int, max_bytes: int) -> tuple[int, int]:
    """A number, and where it ends."""
    value = 0
    for shift in range(0, 7 * max_bytes, 7):
        group = body[position]
        position += 1
        value |= (group & 0x7F) << shift
        if group < 0x80:
            return value, position
    raise Malformed
