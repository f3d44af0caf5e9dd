"""The commands, as a user runs them, against a real server where they talk to one."""

import json
from collections.abc import Iterator
from pathlib import Path

import grpc
import numpy as np
import pytest
from rich.text import Text
from typer.testing import CliRunner, Result

from moorage import __version__
from moorage.cli.application import application
from moorage_client import SyncClient
from tests.support.protocol_server import Behaviour, Failure, protocol_server


@pytest.fixture
def server() -> Iterator[Behaviour]:
    with protocol_server() as behaviour:
        behaviour.metadata.name = "echo"
        behaviour.metadata.inputs.add(name="text", datatype="BYTES", shape=[-1, 1])
        behaviour.metadata.outputs.add(name="text", datatype="BYTES", shape=[-1, 1])
        behaviour.metadata.outputs.add(name="half", datatype="BF16", shape=[-1])
        yield behaviour


def moorage(*arguments: str, stdin: str = "") -> Result:
    return CliRunner().invoke(application, arguments, input=stdin)


def assert_one_line(result: Result, *, exit_code: int, says: str) -> None:
    assert result.exit_code == exit_code, result.output
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert says in result.stderr


def test_version() -> None:
    result = moorage("--version")
    assert (result.exit_code, result.stdout) == (0, f"moorage {__version__}\n")


@pytest.mark.parametrize("command", [("serve",), ("models",), ("models", "load"), ("models", "unload"), ("infer",)])
def test_every_command_has_help(command: tuple[str, ...]) -> None:
    assert moorage(*command, "--help").exit_code == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ("unknown",),
        ("models", "--unknown"),
        ("infer",),
        ("infer", "m", "--text", "x", "--priority", "6"),
        ("infer", "m", "--text", "x", "--unknown"),
        ("infer", "m", "--text", "x", "--timeout", "0"),
        ("infer", "m", "--text", "x", "--timeout", "nan"),
        ("models", "load"),
        ("models", "load", "m", "--timeout", "0"),
    ],
)
def test_wrong_usage_is_2(arguments: tuple[str, ...]) -> None:
    assert moorage(*arguments).exit_code == 2


def test_models_of_another_server_as_a_table(server: Behaviour) -> None:
    server.index.models.add(name="mlp", version="1", state="READY")
    server.index.models.add(name="bad", version="1", state="UNAVAILABLE", reason="no [bold]weights, " + "long " * 60)
    statistics = server.statistics.model_stats.add(name="mlp", version="1")
    statistics.memory_usage.add(type="CPU", byte_size=90 * 1024 * 1024)
    result = moorage("models", "--target", server.target)
    assert result.exit_code == 0
    lines = [line.split() for line in result.stdout.splitlines() if line.strip()]
    headings = "Model Version State Device Memory Host Share Wait Run Ready Reason"
    assert lines[0] == headings.split()
    assert lines[2] == ["mlp", "1", "READY", "cpu", "90", "MiB", "yes"]
    assert lines[3][:8] == ["bad", "1", "UNAVAILABLE", "0", "B", "no", "no", "[bold]weights,"]
    assert len(lines) == 4  # nothing wraps where no person reads
    assert max(map(len, result.stdout.splitlines())) < 150
    assert json.loads(moorage("models", "--json", "--target", server.target).stdout)[1]["reason"].endswith("long ")


def test_in_a_terminal_a_long_reason_is_folded(server: Behaviour, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"FORCE_COLOR": "1", "TERM": "xterm", "COLUMNS": "100"}.items():
        monkeypatch.setenv(name, value)
    server.index.models.add(name="bad", version="1", state="UNAVAILABLE", reason="long " * 60)
    shown = Text.from_ansi(moorage("models", "--target", server.target).stdout).plain
    assert max(map(len, shown.splitlines())) <= 100
    assert shown.count("long") == 60
    assert "UNAVAILABLE" in shown


def test_models_of_another_server_for_machines(server: Behaviour) -> None:
    server.index.models.add(name="mlp", version="1", state="READY")
    result = moorage("models", "--json", "--target", server.target)
    assert json.loads(result.stdout) == [
        {
            "name": "mlp",
            "version": "1",
            "state": "READY",
            "ready": True,
            "reason": "",
            "device": "",
            "memory_bytes": 0,
            "residency": "",
            "leased_bytes": {},
            "host_bytes": 0,
            "priority": None,
            "reserved_bytes": 0,
            "limit_bytes": None,
            "pinned": False,
            "waiting_rows": 0,
            "running_requests": 0,
            "loads": 0,
            "evictions": 0,
            "restores": 0,
            "preemptions": 0,
            "out_of_memory": 0,
            "oom_alone": 0,
            "oom_evicted": 0,
            "oom_halved": 0,
            "oom_other_device": 0,
            "oom_fallback": 0,
            "oom_refused": 0,
            "understudies": [],
        }
    ]


@pytest.mark.parametrize("verb", ["load", "unload"])
def test_load_and_unload(server: Behaviour, verb: str) -> None:
    for arguments in (
        ("models", verb, "mlp", "--target", server.target),
        ("models", "--target", server.target, verb, "mlp"),
    ):
        result = moorage(*arguments)
        assert (result.exit_code, result.stdout) == (0, f"{verb}ed mlp\n")
    assert [request.model_name for request in server.requests] == ["mlp", "mlp"]


def test_the_target_can_come_from_the_environment(server: Behaviour, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOORAGE_TARGET", server.target)
    assert moorage("models").exit_code == 0


def test_a_failed_call_is_one_line_and_1(server: Behaviour) -> None:
    server.failures = [Failure(grpc.StatusCode.NOT_FOUND, "Request for unknown model:\n'[red]' is not found")]
    result = moorage("models", "load", "[red]", "--target", server.target)
    assert_one_line(result, exit_code=1, says="NOT_FOUND: Request for unknown model: '[red]' is not found")


def test_no_server_is_one_line_and_1() -> None:
    with protocol_server() as behaviour:
        target = behaviour.target
    assert_one_line(moorage("models", "--target", target), exit_code=1, says=f"error: no connection to {target}: ")


def test_a_host_without_an_address_is_named() -> None:
    says = "error: no connection to nohost.invalid:1: "
    assert_one_line(moorage("models", "--target", "nohost.invalid:1"), exit_code=1, says=says)


def test_a_server_that_is_unavailable_does_not_look_like_a_lost_connection(server: Behaviour) -> None:
    server.failures = [Failure(grpc.StatusCode.UNAVAILABLE, "draining") for _ in range(3)]
    result = moorage("models", "load", "m", "--target", server.target)
    assert_one_line(result, exit_code=1, says="error: UNAVAILABLE: draining")


def test_infer_with_texts(server: Behaviour) -> None:
    result = moorage("infer", "echo", "--text", "one", "--text", "zwölf", "--target", server.target)
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == ["text  BYTES [2, 1]", "[['one']", " ['zwölf']]"]


@pytest.mark.parametrize(("given", "sent"), [((), None), (("--priority", "0"), None), (("--priority", "2"), 2)])
def test_infer_sends_a_priority_where_one_is_given(server: Behaviour, given: tuple[str, ...], sent: int | None) -> None:
    assert moorage("infer", "echo", "--text", "x", *given, "--target", server.target).exit_code == 0
    parameters = server.requests[-1].parameters
    assert (parameters["priority"].uint64_param if "priority" in parameters else None) == sent


@pytest.mark.parametrize("document", ['{"text": ["a", "b"]}', '{"inputs": {"text": [["a"], ["b"]]}}'])
def test_infer_with_json_from_stdin(server: Behaviour, document: str) -> None:
    result = moorage("infer", "echo", "--json", "-", "--output", "json", "--target", server.target, stdin=document)
    assert json.loads(result.stdout) == {
        "model_name": "echo",
        "outputs": {"text": {"datatype": "BYTES", "shape": [2, 1], "data": [["a"], ["b"]]}},
    }


def test_infer_with_json_and_npy_files(server: Behaviour, tmp_path: Path) -> None:
    server.metadata.inputs.add(name="half", datatype="BF16", shape=[-1])
    np.save(tmp_path / "half.npy", np.array([1.5, -2.0], np.float32))
    (tmp_path / "in.json").write_text('{"text": [["a"], ["b"]]}')
    result = moorage(
        "infer",
        "echo",
        *("--json", str(tmp_path / "in.json")),
        *("--npy", f"half={tmp_path / 'half.npy'}"),
        *("--output", "json"),
        *("--target", server.target),
    )
    assert json.loads(result.stdout)["outputs"]["half"] == {"datatype": "BF16", "shape": [2], "data": [1.5, -2.0]}


def test_what_is_not_utf8_is_told_in_base64(server: Behaviour, monkeypatch: pytest.MonkeyPatch) -> None:
    def infer(*_arguments: object, **_options: object) -> dict[str, object]:
        return {"text": np.array([b"\xff"], dtype=object)}

    monkeypatch.setattr(SyncClient, "infer", infer)
    arguments = ("infer", "echo", "--text", "x", "--target", server.target)
    assert json.loads(moorage(*arguments, "--output", "json").stdout)["outputs"]["text"]["data"] == [{"base64": "/w=="}]
    assert r"b'\xff'" in moorage(*arguments).stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "nothing to infer"),
        (("--npy", "half"), "expected NAME=FILE"),
        (("--npy", "half=missing.npy"), "No such file"),
        (("--npy", f"half={__file__}"), "is no .npy file"),
        (("--npy", f"half={Path(__file__).parent}"), "Is a directory"),
        (("--json", "missing.json"), "No such file"),
        (("--json", "-"), "stdin"),
    ],
)
def test_wrong_inputs_are_one_line_and_2(arguments: tuple[str, ...], says: str) -> None:
    assert_one_line(moorage("infer", "echo", *arguments, stdin="no json"), exit_code=2, says=says)


def test_damaged_npy_files_are_one_line_and_2(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(100))
    (tmp_path / "x.npy").write_bytes((tmp_path / "x.npy").read_bytes()[:-1])
    np.save(tmp_path / "objects.npy", np.array([None]), allow_pickle=True)
    for name in ("x.npy", "objects.npy"):
        result = moorage("infer", "echo", "--npy", f"x={tmp_path / name}")
        assert_one_line(result, exit_code=2, says="is damaged, or holds Python objects")
        assert "allow_pickle" not in result.stderr


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ('{"x": [1e400]}', "1e400 is larger than any finite number"),
        ('{"x": [-1e400]}', "-1e400 is larger than any finite number"),
        ('{"x": [NaN]}', "JSON has no NaN"),
        ('{"x": [-Infinity]}', "JSON has no -Infinity"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_json_that_holds_no_number_or_no_end_is_2(document: str, says: str) -> None:
    assert_one_line(moorage("infer", "echo", "--json", "-", stdin=document), exit_code=2, says=says)


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ('{"other": [1]}', "has no input 'other'; it has text"),
        ('{"text": [1]}', "expected BYTES, got 1"),
        ('{"text": [["a", "b"]]}', "expected shape [-1, 1], got [1, 2]"),
        ("[1]", "expected an object"),
    ],
)
def test_inputs_that_the_model_does_not_have_are_2(server: Behaviour, document: str, says: str) -> None:
    result = moorage("infer", "echo", "--json", "-", "--target", server.target, stdin=document)
    assert_one_line(result, exit_code=2, says=says)
