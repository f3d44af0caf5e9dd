"""A real server for every test of the clients."""

from collections.abc import Iterator

import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status

from tests.support.protocol_server import Behaviour, protocol_server


@pytest.fixture
def server() -> Iterator[Behaviour]:
    with protocol_server() as behaviour:
        yield behaviour


@pytest.fixture
def memory_details() -> bytes:
    """The details of a refusal for want of memory, as Moorage sends them."""
    figures = {
        "device": "cuda:0",
        "bytes_needed": "7",
        "bytes_free": "3",
        "held_by": "vad/1 weights 90, cuda:0 context 10",
    }
    info = AnyMessage()
    info.Pack(ErrorInfo(reason="MEMORY_EXHAUSTED", domain="moorage", metadata=figures))
    serialized: bytes = Status(code=8, details=[info]).SerializeToString()
    return serialized
