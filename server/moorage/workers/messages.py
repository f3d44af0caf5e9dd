"""What server and worker say to each other: msgspec structs, as msgpack, each behind a 4-byte length.

Nothing on these sockets is ever code: a worker decodes into these types or gives up.
"""

from typing import Any

import msgspec

from moorage.domain.model import ModelKey

HEADER_BYTES = 4
# A message carries references to tensors, not their bytes; only parameters could make it large.
MAX_MESSAGE_BYTES = 64 * 1024 * 1024


class Spec(msgspec.Struct, frozen=True, array_like=True):
    """One declared input or output."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    optional: bool


class Blueprint(msgspec.Struct, frozen=True, array_like=True):
    """What a worker needs to build a model."""

    runtime: str
    path: str
    inputs: tuple[Spec, ...]
    outputs: tuple[Spec, ...]
    max_batch_size: int
    parameters: dict[str, Any]
    load_s: float
    run_s: float
    run_s_per_row: float
    declared_weights_bytes: int


class LoadModel(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Build a model. The lane's socket and memory come over `handles`, in the order of these messages."""

    key: ModelKey
    blueprint: Blueprint


class UnloadModel(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Drop a model and give its memory back."""

    key: ModelKey


class Stop(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Drop everything and exit."""


class Hello(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The worker is there."""

    pid: int


class Loaded(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A model is ready for its first run. weights_bytes: measured."""

    key: ModelKey
    weights_bytes: int
    load_s: float


class LoadRefused(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A model could not be built. reason: one line for the caller; detail: a traceback for the log."""

    key: ModelKey
    reason: str
    detail: str


class Unloaded(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A model is gone from memory."""

    key: ModelKey


class TensorReference(msgspec.Struct, frozen=True, array_like=True):
    """A tensor in the lane's memory."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    offset: int
    size_bytes: int


class Member(msgspec.Struct, frozen=True, array_like=True):
    """One caller's part of a run."""

    id: str
    rows: int
    parameters: dict[str, bool | int | float | str]


class Execute(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Compute one run. free_offset: where the lane's memory is free for outputs."""

    run_id: int
    rows: int
    inputs: tuple[TensorReference, ...]
    members: tuple[Member, ...]
    free_offset: int


class OutputReference(msgspec.Struct, frozen=True, array_like=True):
    """An output of a run. splits: where each member's bytes end, from offset."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    offset: int
    size_bytes: int
    splits: tuple[int, ...]


class Executed(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A run is done; its outputs stay where they are until the next Execute on this lane."""

    run_id: int
    outputs: tuple[OutputReference, ...]
    input_ns: int
    infer_ns: int
    output_ns: int


class ExecuteFailed(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A run failed and the worker is well. out_of_memory tells want of memory from a fault of the model."""

    run_id: int
    out_of_memory: bool
    detail: str


ToWorker = LoadModel | UnloadModel | Stop
FromWorker = Hello | Loaded | LoadRefused | Unloaded
ToLane = Execute
FromLane = Executed | ExecuteFailed


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
