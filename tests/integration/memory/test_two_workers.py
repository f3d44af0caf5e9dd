"""Two worker processes on one card, which is not there: each is told of the other in time, and both serve."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from moorage_client import SyncClient
from tests.integration.memory.card import ask
from tests.support.fake_nvml import GIB, FakeCard, needs_c_compiler
from tests.support.running_server import RunningServer, running_server
from tests.support.toy_models import EXPLICIT, write_simulated_model

pytestmark = [needs_c_compiler, pytest.mark.timeout(60)]

FIRST, SECOND = "first", "second"
# One run's leaves no room for the other's.
_MEMORY = f'[memory]\nweights = "{GIB} B"\nworkspace_fixed = "{5 * GIB} B"\n[placement]\ndevices = ["cuda:0"]\n'
# A worker that had not been told would wait for ten seconds.
_MOST_S = 5.0


@contextmanager
def served(folder: Path) -> Iterator[tuple[RunningServer, SyncClient]]:
    write_simulated_model(folder / "models", FIRST, run_s=0.001, extra=_MEMORY)
    write_simulated_model(
        folder / "models", SECOND, run_s=0.001, top=EXPLICIT, extra=f'{_MEMORY}isolation = "dedicated"\n'
    )
    card = FakeCard(folder, total_bytes=10 * GIB)
    variables = {
        **card.environment,
        "MOORAGE_DEVICES__CUDA_0__BUDGET": f"{8 * GIB} B",
        "MOORAGE_DEVICES__CUDA_0__CONTEXT": "0 B",
        "MOORAGE_SERVER__FOOTPRINTS": "off",
    }
    with (
        running_server(folder / "models", folder, environment=variables) as server,
        SyncClient(server.grpc, attempts=1) as client,
    ):
        client.wait_until_ready(timeout_s=30.0, models=[FIRST])
        yield server, client


def test_they_pass_memory_to_each_other(tmp_path: Path) -> None:
    with served(tmp_path) as (server, client):
        ask(client, FIRST, timeout_s=_MOST_S)
        assert "cached bytes back" not in server.logs
        client.load(SECOND, timeout_s=30.0)
        assert len(server.workers()) == 2
        told, loaded = "worker cuda:0 gave 0 cached bytes back", f"model {SECOND}/1 loaded"
        assert 0 <= server.logs.find(told) < server.logs.find(loaded), server.logs
        for _ in range(30):
            ask(client, SECOND, timeout_s=_MOST_S)
            ask(client, FIRST, timeout_s=_MOST_S)
        assert server.logs.count("cached bytes back") == 1
