"""A real server for every test of the clients."""

from collections.abc import Iterator

import pytest

from tests.support.protocol_server import Behaviour, protocol_server


@pytest.fixture
def server() -> Iterator[Behaviour]:
    with protocol_server() as behaviour:
        yield behaviour
