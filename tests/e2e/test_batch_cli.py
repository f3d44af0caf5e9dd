"""`moorage batch`, as a process, against a server that is a process."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.calls import calls_to
from tests.support.polling import eventually
from tests.support.running_server import RunningServer, running_server
from tests.support.toy_models import ECHO, write_python_model

_SLOW_WORDS = """
    import time
    from moorage import InvalidInput, Model

    class SlowWords(Model):
        def infer(self, inputs, batch):
            time.sleep(0.02)
            if b"bad" in inputs["x"]:
                raise InvalidInput("a bad word")
            return {"y": [[word.upper()] for word in inputs["x"]]}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("batches")
    models = folder / "models"
    write_python_model(models, "echo", ECHO)
    write_python_model(models, "words", _SLOW_WORDS, datatype="BYTES", shape="[1]")
    with running_server(models, folder) as running, calls_to(running.grpc) as calls:
        eventually(calls.is_ready, within_s=50.0, what="the server is ready")
        yield running


def command_of(server: RunningServer, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "moorage", "batch", *arguments, "--target", server.grpc]


def moorage_batch(server: RunningServer, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = command_of(server, *arguments)
    return subprocess.run(command, capture_output=True, text=True, timeout=40, check=False, input=stdin)


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def words(folder: Path, count: int, **others: str) -> Path:
    """Items a-0 and so on; others: of some, by their number, another text."""
    path = folder / "items.jsonl"
    items = ({"id": f"a-{n}", "inputs": {"x": others.get(f"n{n}", f"word {n}")}} for n in range(count))
    path.write_text("".join(json.dumps(item) + "\n" for item in items))
    return path


def test_submit_show_list_attach_and_delete(server: RunningServer, tmp_path: Path) -> None:
    out, again = tmp_path / "results.jsonl", tmp_path / "again.jsonl"
    arguments = ("words", str(words(tmp_path, 30, n7="bad")), "--id", "first", "--label", "team=search")
    result = moorage_batch(server, "submit", *arguments, "--out", str(out), "--ordered")
    assert result.returncode == 1, result.stderr
    assert result.stderr == "first: DONE, 30 items: 29 succeeded, 1 failed\n"
    lines = lines_of(out)
    assert [line["id"] for line in lines] == [f"a-{n}" for n in range(30)]
    assert lines[3] == {"id": "a-3", "sequence": 4, "outputs": {"y": [["WORD 3"]]}}
    assert lines[7]["error"]["code"] == "INVALID_ARGUMENT"
    assert "a bad word" in lines[7]["error"]["message"]
    shown = json.loads(moorage_batch(server, "show", "first", "--json").stdout)
    assert (shown["state"], shown["counts"]["failed"]) == ("DONE", 1)
    listed = moorage_batch(server, "list", "--label", "team=search")
    assert "first" in listed.stdout
    assert json.loads(moorage_batch(server, "list", "--label", "team=ads", "--json").stdout) == []
    assert moorage_batch(server, "attach", "first", "--out", str(again)).returncode == 1
    assert again.read_text() == out.read_text()
    assert moorage_batch(server, "cancel", "first").stdout.startswith("first: DONE")
    assert moorage_batch(server, "delete", "first").stdout == "deleted first\n"
    gone = moorage_batch(server, "show", "first")
    assert (gone.returncode, gone.stderr) == (1, "error: NOT_FOUND: batch 'first' is not found\n")


def test_ctrl_c_leaves_it_to_the_server_and_the_same_command_goes_on(server: RunningServer, tmp_path: Path) -> None:
    out = tmp_path / "results.jsonl"
    arguments = ("submit", "words", str(words(tmp_path, 2000)), "--id", "second", "--out", str(out))
    process = subprocess.Popen(command_of(server, *arguments), stderr=subprocess.PIPE, text=True)
    eventually(lambda: out.exists() and out.stat().st_size > 0, within_s=20.0, what="there are results")
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=20.0)
    assert process.returncode == 130
    assert f"moorage batch attach second --out {out}" in told
    before = len(lines_of(out))
    assert 0 < before < 2000
    with out.open("a") as file:
        file.write('{"id": "a-')  # as a process leaves it that was killed
    result = moorage_batch(server, *arguments)
    assert result.returncode == 0, result.stderr
    lines = lines_of(out)
    assert sorted(line["id"] for line in lines) == sorted(f"a-{n}" for n in range(2000))
    assert [line["sequence"] for line in lines] == list(range(1, 2001))
    refused = moorage_batch(server, "submit", "words", str(tmp_path / "items.jsonl"), "--out", str(out))
    assert refused.returncode == 2
    assert "has results already" in refused.stderr


def test_stdin_and_stdout(server: RunningServer) -> None:
    items = "".join(json.dumps({"inputs": {"x": [float(n)] * 4}}) + "\n" for n in range(5))
    result = moorage_batch(server, "submit", "echo", "-", "--out", "-", "--no-durable", "--ordered", stdin=items)
    assert result.returncode == 0, result.stderr
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(line["id"], line["outputs"]["y"]) for line in lines] == [(str(n), [[float(n)] * 4]) for n in range(5)]


@pytest.mark.parametrize("kind", ["npy", "npz"])
def test_arrays(server: RunningServer, tmp_path: Path, kind: str) -> None:
    path, out = tmp_path / f"items.{kind}", tmp_path / "results.jsonl"
    array = np.arange(40, dtype=np.float32).reshape(10, 4)
    if kind == "npy":
        np.save(path, array)
    else:
        np.savez(path, x=array)
    result = moorage_batch(server, "submit", "echo", str(path), "--out", str(out), "--ordered")
    assert result.returncode == 0, result.stderr
    assert [line["outputs"]["y"] for line in lines_of(out)] == [[row] for row in array.tolist()]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"inputs": {"x": "fine"}}\nnot json\n', "line 2: expected JSON"),
        ('{"input": {"x": "fine"}}\n', 'line 1: expected an object such as {"id": "a", "inputs"'),
        ('{"inputs": {"z": "fine"}}\n', "line 1: model 'words' has no input 'z'"),
        ('{"inputs": {"x": 7}}\n', "line 1: input 'x': expected BYTES"),
        ('{"inputs": {"x": "fine"}, "idd": 1}\n', "line 1: expected the keys id, inputs"),
        ('{"id": [1], "inputs": {"x": "fine"}}\n', "line 1: id: expected a string"),
    ],
)
def test_a_line_that_is_no_item_is_named(server: RunningServer, tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "items.jsonl"
    path.write_text(text)
    result = moorage_batch(server, "submit", "words", str(path), "--out", str(tmp_path / "out.jsonl"))
    assert result.returncode == 2, result.stderr
    told = [line for line in result.stderr.splitlines() if not line.startswith("batch words-")]
    assert len(told) == 1
    assert told[0].startswith(f"error: {path}: ")
    assert says in told[0]


def test_other_mistakes(server: RunningServer, tmp_path: Path) -> None:
    path, out = str(words(tmp_path, 1)), str(tmp_path / "out.jsonl")
    other = tmp_path / "notes.txt"
    other.write_text("not results\n")
    for arguments, code, says in (
        (("submit", "nothing", path, "--out", out), 1, "NOT_FOUND"),
        (("submit", "words", str(tmp_path / "missing.jsonl"), "--out", out), 2, "missing.jsonl: No such file"),
        (("submit", "words", path, "--out", str(other)), 2, "expected results of a batch as JSON lines"),
        (("submit", "words", path, "--out", str(tmp_path / "no" / "folder")), 2, "--out"),
        (("submit", "words", path, "--out", out, "--id", "a b"), 1, "batch_id: expected from 1 to 128"),
        (("submit", "words", path, "--out", out, "--label", "x"), 2, "--label: expected KEY=VALUE"),
        (("attach", "nothing", "--out", out), 1, "NOT_FOUND"),
    ):
        result = moorage_batch(server, *arguments)
        assert (result.returncode, result.stderr.count("\n")) == (code, 1), result.stderr
        assert says in result.stderr


def test_a_batch_survives_the_server(tmp_path: Path) -> None:
    """kill -9 in the middle: the command waits, and has each result once when another server is there."""
    models, out = tmp_path / "models", tmp_path / "results.jsonl"
    write_python_model(models, "words", _SLOW_WORDS, datatype="BYTES", shape="[1]")
    arguments = ("submit", "words", str(words(tmp_path, 1500)), "--id", "third", "--out", str(out), "--json")
    with running_server(models, tmp_path) as first:
        process = subprocess.Popen(command_of(first, *arguments), stdout=subprocess.PIPE, text=True)
        eventually(lambda: out.exists() and out.stat().st_size > 0, within_s=20.0, what="there are results")
        first.process.kill()
        first.process.wait(5.0)
    time.sleep(0.5)
    with running_server(models, tmp_path, grpc=first.grpc):
        told, _ = process.communicate(timeout=40.0)
    assert process.returncode == 0
    assert json.loads(told)["counts"]["succeeded"] == 1500
    assert sorted(line["id"] for line in lines_of(out)) == sorted(f"a-{n}" for n in range(1500))
