"""B37: a name from a client is never a path. Nothing outside the repository is opened, nothing is written anywhere."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf.message import Message

from moorage_protocol import inference as pb
from tests.integration.cases.conftest import SharedServer
from tests.support.calls import Calls, request_of, rows_of

_NAMES = [
    "../echo",
    "a/../../etc",
    "/etc/passwd",
    "%2e%2e/x",
    "..\\echo",
    "C:\\x",
    "echo\0.toml",
    "",
    ".",
    "..",
    "x" * 300,
    "ech\u043e",  # a Cyrillic o
    "\u202eecho",
    "echo\n{}",
    " echo",
    "echo/",
    "echo/1",
    "outside",  # a link that leads out of the repository
]
_VERSIONS = ["../1", "-1", "1e3", "1/../1", "0", "01", "9" * 30, "1 ", "\u0661"]
_REFUSALS = {"INVALID_ARGUMENT", "NOT_FOUND"}


def _requests(name: str, version: str = "1") -> Iterator[tuple[str, Message]]:
    """Every method that takes a name."""
    yield "RepositoryModelLoad", pb.RepositoryModelLoadRequest(model_name=name)
    yield "RepositoryModelUnload", pb.RepositoryModelUnloadRequest(model_name=name)
    yield from _versioned(name, version)


def _versioned(name: str, version: str) -> Iterator[tuple[str, Message]]:
    yield "ModelMetadata", pb.ModelMetadataRequest(name=name, version=version)
    yield "ModelConfig", pb.ModelConfigRequest(name=name, version=version)
    yield "ModelStatistics", pb.ModelStatisticsRequest(name=name, version=version)
    yield "ModelInfer", request_of(name, rows_of(1), version=version)


@pytest.fixture(scope="module")
def outside(shared_server: SharedServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that is not in the repository, and a link in the repository that leads to it."""
    folder = tmp_path_factory.mktemp("outside")
    (folder / "1").mkdir()
    (folder / "model.toml").write_text((shared_server.models / "echo" / "model.toml").read_text())
    (folder / "1" / "model.py").write_text((shared_server.models / "echo" / "1" / "model.py").read_text())
    (shared_server.models / "outside").symlink_to(folder)
    return folder


def _tree(folder: Path) -> dict[str, int]:
    """Every entry under a folder and when it was last read, where the file system notes that."""
    return {path: os.lstat(path).st_mtime_ns for path in map(str, folder.rglob("*")) if "__pycache__" not in path}


@pytest.mark.parametrize("name", _NAMES, ids=ascii)
def test_no_name_leads_anywhere(watched: SharedServer, outside: Path, name: str) -> None:
    top = watched.models.parents[1]
    before = _tree(top)
    for method, request in _requests(name):
        if method == "ModelStatistics" and not name:
            continue  # no name: all models
        failed = watched.calls.failure(request, method=method)
        # The link is a folder of the repository's, and known to be broken once it was looked at.
        allowed = _REFUSALS | {"FAILED_PRECONDITION", "UNAVAILABLE"} if name == "outside" else _REFUSALS
        assert failed.code in allowed, f"{method}: {failed}"
        assert str(top) not in failed.message
        assert len(failed.message) < 600
        assert failed.message.isprintable()
    assert not watched.calls("ModelReady", pb.ModelReadyRequest(name="no_such_model")).ready
    assert {path for path in _tree(top) if not path.endswith(".log")} == {p for p in before if not p.endswith(".log")}


@pytest.mark.parametrize("version", _VERSIONS, ids=ascii)
def test_no_version_leads_anywhere(watched: SharedServer, version: str) -> None:
    for method, request in _versioned("echo", version):
        failed = watched.calls.failure(request, method=method)
        assert failed.code in _REFUSALS, f"{method}: {failed}"


def test_the_server_opens_nothing_outside(watched: SharedServer, outside: Path) -> None:
    """A file that was opened would have a younger access time, if the file system keeps them; a pipe would block."""
    pipe = watched.models.parent / "pipe"
    os.mkfifo(pipe)
    calls = watched.calls
    for name in ("../pipe", "../pipe/1", str(pipe), "outside"):
        failed = calls.failure(pb.RepositoryModelLoadRequest(model_name=name), 5.0, "RepositoryModelLoad")
        assert failed.code in _REFUSALS | {"FAILED_PRECONDITION"}
    opened = {os.readlink(entry) for entry in _descriptors(watched)}
    assert not [target for target in opened if str(outside) in target or "/etc/" in target]
    pipe.unlink()


def _descriptors(shared: SharedServer) -> list[str]:
    folder = f"/proc/{shared.server.pid}/fd"
    return [path for name in os.listdir(folder) if os.path.lexists(path := f"{folder}/{name}")]


def test_clients_bring_no_files_and_no_configurations(watched: SharedServer) -> None:
    before = _tree(watched.models)
    for key in ("config", "file:1/model.py", "file:../../x", "anything"):
        request = pb.RepositoryModelLoadRequest(model_name="echo")
        request.parameters[key].bytes_param = b"code"
        failed = watched.calls.failure(request, method="RepositoryModelLoad")
        assert failed.code == "INVALID_ARGUMENT"
        assert "not taken from clients" in failed.message
    assert _tree(watched.models) == before


def test_the_log_is_one_object_a_line_whatever_clients_send(watched: SharedServer) -> None:
    name = 'forged"}\n{"level": "critical", "message": "forged'
    calls: Calls = watched.calls
    for method, request in _requests(name):
        assert calls.failure(request, method=method).code == "INVALID_ARGUMENT"
    assert not [line for line in watched.server.logs.splitlines() if line.startswith('{"level"')]
