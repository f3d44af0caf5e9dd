"""Framing: whatever the pieces a stream comes in, the same messages come out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.workers.framing import MAX_MESSAGE_BYTES, Deframer, frame


@given(bodies=st.lists(st.binary(max_size=40), max_size=12), cuts=st.lists(st.integers(1, 30), max_size=40))
def test_any_cutting_gives_the_same_messages(bodies: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(frame(body) for body in bodies)
    deframer = Deframer()
    received: list[bytes] = []
    for cut in [*cuts, len(stream)]:
        piece, stream = stream[:cut], stream[cut:]
        received += deframer.feed(piece)
    received += deframer.feed(stream)
    assert received == bodies


def test_a_length_over_the_limit_is_refused_before_anything_is_kept() -> None:
    with pytest.raises(ValueError, match="limit"):
        Deframer().feed(b"\xff\xff\xff\xff rest")


def test_a_message_over_the_limit_is_not_sent() -> None:
    class Huge(bytes):
        def __len__(self) -> int:
            return MAX_MESSAGE_BYTES + 1

    with pytest.raises(ValueError, match="exceeds"):
        frame(Huge())
