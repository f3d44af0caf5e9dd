"""The README's commands, and the mistakes that people make with them."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.support.running_server import RunningServer, running_server
from tests.support.toy_models import BROKEN, write_python_model

DOUBLER = """
    from moorage import Model

    class Doubler(Model):
        def infer(self, inputs, batch):
            return {"y": inputs["x"] * 2}
"""


def moorage(*arguments: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "moorage", *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=40, check=False)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("cli")
    write_python_model(folder / "models", "doubler", DOUBLER)
    write_python_model(folder / "models", "broken", BROKEN)
    with running_server(folder / "models", folder) as found:
        yield found


def test_a_model_is_asked_from_the_shell(server: RunningServer) -> None:
    asked = moorage(
        "infer", "doubler", "--json", "-", "--output", "json", "--target", server.grpc, stdin='{"x": [[1, 2, 3, 4]]}'
    )
    assert asked.returncode == 0, asked.stderr
    assert "8" in asked.stdout
    assert json.loads(asked.stdout)


def test_arrays_come_from_files(server: RunningServer, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.full((2, 4), 3.0))  # float64, as NumPy makes them; the model takes FP32
    asked = moorage("infer", "doubler", "--npy", f"x={tmp_path / 'x.npy'}", "--target", server.grpc)
    assert asked.returncode == 0, asked.stderr
    assert "6" in asked.stdout


def test_models_are_listed_with_what_is_wrong(server: RunningServer) -> None:
    listed = moorage("models", "--json", "--target", server.grpc)
    models = {model["name"]: model for model in json.loads(listed.stdout)}
    assert models["doubler"]["ready"]
    assert not models["broken"]["ready"]
    assert "no such weights" in models["broken"]["reason"]


def test_a_wrong_input_is_one_clear_line(server: RunningServer) -> None:
    asked = moorage("infer", "doubler", "--json", "-", "--target", server.grpc, stdin='{"x": [[1, 2, 3]]}')
    assert asked.returncode == 2
    assert "input 'x': expected shape [-1, 4], got [1, 3]" in asked.stderr
    assert len(asked.stderr.splitlines()) == 1


def test_no_server_is_one_clear_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        target = f"127.0.0.1:{listener.getsockname()[1]}"
    asked = moorage("models", "--target", target)
    assert asked.returncode == 1
    assert asked.stderr.startswith(f"error: no connection to {target}: ")
    assert len(asked.stderr.splitlines()) == 1


def test_a_model_that_failed_is_unavailable_and_not_a_lost_connection(server: RunningServer) -> None:
    asked = moorage("infer", "broken", "--json", "-", "--target", server.grpc, stdin='{"x": [[1, 2, 3, 4]]}')
    assert asked.returncode == 1
    assert asked.stderr.startswith("error: UNAVAILABLE: ")
    assert server.grpc not in asked.stderr


def test_the_table_in_a_pipe_is_narrow(server: RunningServer) -> None:
    listed = moorage("models", "--target", server.grpc)
    assert "no such weights" in listed.stdout
    assert max(map(len, listed.stdout.splitlines())) < 140


def test_an_unknown_model_is_named(server: RunningServer) -> None:
    asked = moorage("infer", "absent", "--json", "-", "--target", server.grpc, stdin='{"x": [[1]]}')
    assert asked.returncode == 1
    assert "absent" in asked.stderr


def test_the_address_is_taken(server: RunningServer, tmp_path: Path) -> None:
    write_python_model(tmp_path / "models", "doubler", DOUBLER)
    started = moorage("serve", "--models", str(tmp_path / "models"), "--grpc", server.grpc, "--http", "off")
    assert started.returncode == 1
    assert server.grpc in started.stderr
    assert "Traceback" not in started.stderr


def test_the_http_address_is_taken(tmp_path: Path) -> None:
    write_python_model(tmp_path / "models", "doubler", DOUBLER)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        http = f"127.0.0.1:{taken.getsockname()[1]}"
        started = moorage("serve", "--models", str(tmp_path / "models"), "--grpc", "127.0.0.1:0", "--http", http)
    assert started.returncode == 1
    assert "Traceback" not in started.stderr


def test_no_repository(tmp_path: Path) -> None:
    started = moorage("serve", "--models", str(tmp_path / "absent"), "--grpc", "127.0.0.1:0", "--http", "off")
    assert started.returncode in {1, 2}
    assert "absent" in started.stderr
    assert "Traceback" not in started.stderr


def test_a_wrong_setting_names_file_key_and_value(tmp_path: Path) -> None:
    file = tmp_path / "moorage.toml"
    file.write_text('[server]\ngrace = 10\n[devices.cpu]\nbudget = "lots"\n')
    started = moorage("serve", "--config", str(file))
    assert started.returncode == 2
    assert "moorage.toml" in started.stderr
    assert "grace_s" in started.stderr
    assert "lots" in started.stderr
