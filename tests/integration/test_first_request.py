"""The shortest way through the whole server: a request goes in, its answer comes out."""

from pathlib import Path

import numpy as np

from moorage_client import SyncClient
from tests.support.running_server import running_server
from tests.support.toy_models import ECHO, TAG, write_python_model


def test_a_request_is_answered_and_the_server_ends_well(tmp_path: Path) -> None:
    write_python_model(tmp_path / "models", "echo", ECHO)
    write_python_model(tmp_path / "models", "tag", TAG)
    with running_server(tmp_path / "models", tmp_path) as server:
        with SyncClient(server.grpc) as client:
            client.wait_until_ready(timeout_s=30.0)
            x = np.arange(8, dtype=np.float32).reshape(2, 4)
            assert np.array_equal(client.infer("echo", {"x": x})["y"], x)
            assert client.infer("tag", {"x": x})["y"][:, 0].tolist() == [2.0, 2.0]
        workers = server.workers()
        assert len(workers) == 1
        assert server.terminate() == 0
        assert not workers[0].is_running()
