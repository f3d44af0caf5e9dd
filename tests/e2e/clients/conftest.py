"""One server of the example models for all tests with other people's clients."""

from collections.abc import Iterator

import pytest

from moorage_client import SyncClient
from tests.e2e.clients.served_examples import ServedExample, served_examples
from tests.support.model_files import EXAMPLE_MODELS
from tests.support.running_server import RunningServer, running_server


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(EXAMPLE_MODELS, tmp_path_factory.mktemp("clients")) as running:
        with SyncClient(running.grpc) as client:
            client.wait_until_ready(timeout_s=30.0)
        yield running
        assert running.terminate() == 0
        assert '"level": "error"' not in running.logs


@pytest.fixture(scope="session")
def examples() -> dict[str, ServedExample]:
    """Every example model by name, with an input and what it must answer, computed in this process."""
    return {example.model: example for example in served_examples()}
