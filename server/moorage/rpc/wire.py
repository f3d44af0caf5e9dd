"""The few bytes of protobuf's wire format that are worth reading and writing by hand.

Protobuf copies the contents of a tensor twice on the way in (into the message, then into a `bytes`) and twice on the
way out. The outermost fields of the two inference messages are simple enough to take and place tensors without that.
"""

from collections.abc import Sequence

from google.protobuf.message import DecodeError

from moorage.domain.errors import InvalidRequest
from moorage.rpc.bounds import BOUNDED_FROM_BYTES, Malformed, check_bounds
from moorage_protocol import inference as pb

_RAW_INPUT_TAG = 7 << 3 | 2
_LENGTH_DELIMITED = 2
_SPLIT_FROM_BYTES = 16 * 1024  # below this, protobuf's own copies cost less than the walk
_MAX_FIELDS = 256  # with more of them the views would cost more than protobuf's copies

Buffer = bytes | memoryview


def varint(value: int) -> bytes:
    """An unsigned number in base 128, least significant group first."""
    if value < 0x80:
        return bytes((value,))
    groups = bytearray()
    while value >= 0x80:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    groups.append(value)
    return bytes(groups)


def parse_inference(body: bytes) -> tuple[pb.ModelInferRequest, Sequence[Buffer]]:
    """The request and its raw contents. Of a large body, the contents are views into it.

    Raises InvalidRequest when the bytes are no such message, or one that would take long to parse.
    """
    split = _split(body) if len(body) >= _SPLIT_FROM_BYTES else None
    head, raw = split if split is not None else (body, None)
    try:
        if len(head) >= BOUNDED_FROM_BYTES:
            check_bounds(head)
        message = pb.ModelInferRequest.FromString(head)
    except (DecodeError, Malformed):
        raise InvalidRequest(
            "request", expected="a serialized inference.ModelInferRequest", got=f"{len(body)} bytes that do not parse"
        ) from None
    return message, message.raw_input_contents if raw is None else raw


def _split(body: bytes) -> tuple[bytes, list[memoryview]] | None:
    """All other fields joined, and views of the raw contents; None without any, or for anything unusual."""
    view = memoryview(body)
    others: list[memoryview] = []
    raw: list[memoryview] = []
    position = 0
    for _ in range(_MAX_FIELDS):
        if position == len(body):
            return (b"".join(others), raw) if raw else None
        tag = body[position]
        span = length_delimited(body, position + 1) if tag & 0x87 == _LENGTH_DELIMITED else None
        if span is None:
            return None
        if tag == _RAW_INPUT_TAG:
            raw.append(view[slice(*span)])
        else:
            others.append(view[position : span[1]])
        position = span[1]
    return None


def length_delimited(body: bytes, position: int) -> tuple[int, int] | None:
    """Where the value begins and ends whose length stands at `position`; None where it does not fit the body."""
    length = 0
    for shift in range(0, 35, 7):
        if position >= len(body):
            return None
        group = body[position]
        position += 1
        length |= (group & 0x7F) << shift
        if group < 0x80:
            return (position, position + length) if position + length <= len(body) else None
    return None
