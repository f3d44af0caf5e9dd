"""The commands, as processes, against a server that is a process."""

import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.support.calls import calls_to
from tests.support.polling import eventually
from tests.support.running_server import RunningServer, running_server
from tests.support.toy_models import BROKEN, ECHO, EXPLICIT, write_python_model, write_simulated_model

_WORDS = """
    from moorage import Model

    class Words(Model):
        def infer(self, inputs, batch):
            return {"y": [[word] for word in inputs["x"]]}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("cli")
    models = folder / "models"
    write_python_model(models, "echo", ECHO)
    write_python_model(models, "words", _WORDS, datatype="BYTES", shape="[1]")
    write_python_model(models, "broken", BROKEN)
    write_simulated_model(models, "manual", top=EXPLICIT, extra='[memory]\nweights = "1 MiB"')
    with running_server(models, folder) as running, calls_to(running.grpc) as calls:
        eventually(calls.is_ready, within_s=50.0, what="the server is ready")
        yield running


def _moorage(*arguments: str, target: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "moorage", *arguments, *(["--target", target] if target else [])]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


def test_models_lists_everything_with_its_reason(server: RunningServer) -> None:
    result = _moorage("models", "--json", target=server.grpc)
    assert result.returncode == 0, result.stderr
    listed = {model["name"]: model for model in json.loads(result.stdout)}
    assert listed.keys() == {"echo", "words", "broken", "manual"}
    assert listed["echo"]["ready"]
    assert not listed["broken"]["ready"]
    assert "no such weights" in listed["broken"]["reason"]


def test_load_and_unload(server: RunningServer) -> None:
    assert _moorage("models", "load", "manual", target=server.grpc).returncode == 0
    listed = {model["name"]: model for model in json.loads(_moorage("models", "--json", target=server.grpc).stdout)}
    assert listed["manual"]["ready"]
    assert listed["manual"]["memory_bytes"] == 2**20
    assert _moorage("models", "unload", "manual", target=server.grpc).returncode == 0
    failed = _moorage("models", "load", "broken", target=server.grpc)
    assert failed.returncode == 1
    assert "no such weights" in failed.stderr
    assert "Traceback" not in failed.stderr


def test_infer(server: RunningServer, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([[1, 2, 3, 4]], np.float32))
    result = _moorage("infer", "echo", "--npy", f"x={tmp_path / 'x.npy'}", "--output", "json", target=server.grpc)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["outputs"]["y"]["data"] == [[1.0, 2.0, 3.0, 4.0]]
    result = _moorage("infer", "words", "--text", "héllo", "--text", "wörld", "--output", "json", target=server.grpc)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["outputs"]["y"]["data"] == [["héllo"], ["wörld"]]
    failed = _moorage("infer", "missing", "--text", "x", target=server.grpc)
    assert failed.returncode == 1
    assert "missing" in failed.stderr


def test_health_over_http(server: RunningServer) -> None:
    for path in ("healthz", "readyz"):
        with urllib.request.urlopen(f"http://{server.http}/{path}", timeout=5) as answer:
            assert answer.status == 200
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(f"http://{server.http}/nothing", timeout=5)
    error.value.close()
    assert error.value.code == 404


def test_a_server_that_cannot_start_says_why(server: RunningServer, tmp_path: Path) -> None:
    models = tmp_path / "models"
    models.mkdir()
    taken = _moorage("serve", "--models", str(models), "--grpc", server.grpc, "--http", "off", "--budget", "1GiB")
    assert taken.returncode == 1
    assert server.grpc in taken.stderr
    absent = _moorage("serve", "--models", str(tmp_path / "none"), "--grpc", "127.0.0.1:0", "--http", "off")
    assert absent.returncode == 1
    settings = tmp_path / "moorage.toml"
    settings.write_text('[server]\ngrcp = "127.0.0.1:0"\n')
    wrong = _moorage("serve", "--config", str(settings))
    assert wrong.returncode == 2
    assert "grcp" in wrong.stderr
    assert "grpc" in wrong.stderr, "the nearest known key"
    for result in (taken, absent, wrong):
        assert "Traceback" not in result.stderr
