"""The items of a SubmitRequest, without parsing what they hold."""

from collections.abc import Sequence

from google.protobuf.message import DecodeError

from moorage.batches.items import Submitted
from moorage.domain.errors import InvalidRequest
from moorage.rpc.codec import MAX_ID_CHARACTERS
from moorage.rpc.wire import length_delimited
from moorage.rpc.wording import quote
from moorage_protocol import moorage_v1 as pb

MAX_ITEMS = 65536
"""Of one message."""

_ITEMS_TAG = 2 << 3 | 2  # of SubmitRequest
_ITEM_TAG = 1 << 3 | 2  # of BatchItems
_ID_TAG = 3 << 3 | 2  # of ModelInferRequest


def opening_of(body: bytes) -> pb.SubmitRequest:
    """A call's first message. Raises InvalidRequest where it has no header."""
    try:
        message = pb.SubmitRequest.FromString(body)
    except DecodeError:
        raise _malformed(body) from None
    if not message.HasField("header"):
        raise InvalidRequest("header", expected="one in the first message", got="none")
    return message


def items_of(body: bytes) -> Sequence[Submitted]:
    """Those of one message, in their order. Raises InvalidRequest where there are none, or too many.

    What an item holds is looked at when it runs, so that a wrong one costs itself alone.
    """
    items: list[Submitted] = []
    for tag, begin, end in _fields(body, 0, len(body)):
        if tag == _ITEMS_TAG:
            items += _items(body, begin, end)
    if not items:
        raise InvalidRequest("items", expected="at least one", got="none")
    return items


def _items(body: bytes, begin: int, end: int) -> list[Submitted]:
    spans = [(begin, end) for tag, begin, end in _fields(body, begin, end) if tag == _ITEM_TAG]
    if len(spans) > MAX_ITEMS:
        raise InvalidRequest("items", expected=f"at most {MAX_ITEMS} in a message", got=str(len(spans)))
    return [Submitted(_item_id(body, *span), body[slice(*span)]) for span in spans]


def _item_id(body: bytes, begin: int, end: int) -> str:
    """What stands there last, as protobuf has it; none in what is no request: that fails when it runs."""
    found = ""
    try:
        fields = _fields(body, begin, end)
    except InvalidRequest:
        return found
    for tag, start, stop in fields:
        if tag == _ID_TAG:
            found = _text(body[start:stop])
    return found


def _text(data: bytes) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise InvalidRequest("items.id", expected="UTF-8", got=quote(repr(data[:64]))) from None
    if len(text) > MAX_ID_CHARACTERS:
        raise InvalidRequest("items.id", expected=f"at most {MAX_ID_CHARACTERS} characters", got=str(len(text)))
    return text


def _fields(body: bytes, position: int, end: int) -> list[tuple[int, int, int]]:
    """Tag, begin and end of each field. All fields of these messages are length-delimited."""
    found: list[tuple[int, int, int]] = []
    while position < end:
        span = length_delimited(body, position + 1) if body[position] & 0x87 == 2 else None
        if span is None or span[1] > end:
            raise _malformed(body)
        found.append((body[position], *span))
        position = span[1]
    return found


def _malformed(body: bytes) -> InvalidRequest:
    return InvalidRequest(
        "request", expected="a serialized moorage.v1.SubmitRequest", got=f"{len(body)} bytes that do not parse"
    )
