"""Messages on a byte stream: each behind its length, in 4 bytes."""

HEADER_BYTES = 4
# A message carries references to tensors, not their bytes; only parameters could make it large.
MAX_MESSAGE_BYTES = 64 * 1024 * 1024


def frame(body: bytes) -> bytes:
    """A message with its length in front, little endian.

    Raises ValueError if it is longer than MAX_MESSAGE_BYTES.
    """
    if len(body) > MAX_MESSAGE_BYTES:
        raise ValueError(f"message of {len(body)} bytes exceeds the limit of {MAX_MESSAGE_BYTES}")
    return len(body).to_bytes(HEADER_BYTES, "little") + body


class Deframer:
    """Cuts a byte stream back into messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Add what came in; the messages that are complete now.

        Raises ValueError for a length over the limit: the stream can't be trusted from there on.
        """
        if not self._buffer and len(data) >= HEADER_BYTES:
            end = HEADER_BYTES + int.from_bytes(data[:HEADER_BYTES], "little")
            if end == len(data):  # the norm: one whole message
                return [data[HEADER_BYTES:]]
        self._buffer += data
        messages: list[bytes] = []
        start = 0
        while len(self._buffer) - start >= HEADER_BYTES:
            size_bytes = int.from_bytes(self._buffer[start : start + HEADER_BYTES], "little")
            if size_bytes > MAX_MESSAGE_BYTES:
                raise ValueError(f"message of {size_bytes} bytes announced, limit {MAX_MESSAGE_BYTES}")
            end = start + HEADER_BYTES + size_bytes
            if len(self._buffer) < end:
                break
            messages.append(bytes(self._buffer[start + HEADER_BYTES : end]))
            start = end
        del self._buffer[:start]
        return messages
