"""B40: a model file is data. Only model.py is code, a request never is, and nobody else reaches a worker.

What garbage on a worker's socket does is shown by the unit tests of Link and by test_worker_garbage.
"""

import io
import os
import pickle
import re
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from moorage_protocol import inference as pb
from tests.integration.cases.conftest import SharedServer
from tests.support.after_check import after_check
from tests.support.calls import Tensor, output_of, request_of, rows_of
from tests.support.sentinel import sentinel
from tests.support.toy_models import EXPLICIT, write_python_model


@pytest.fixture
def watched(shared_server: SharedServer) -> Iterator[SharedServer]:
    """As everywhere, but the sentinel is patient: it is in the worker that reads the files, and reading an export keeps
    the interpreter's lock for tenths of a second. Here it shows that the neighbours are served, not how soon."""
    with sentinel(shared_server.server.grpc, limit_s=2.0):
        yield shared_server
    after_check(shared_server.server, shared_server.calls, shared_server.baseline)


class _Doubler(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.factor = torch.nn.Parameter(torch.full((4,), 2.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.factor


class _Bomb:
    """Creates a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self._marker = marker

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return os.mkdir, (str(self._marker),)


def _as_pickle(marker: Path) -> bytes:
    return pickle.dumps(_Bomb(marker))


def _as_torch_file(marker: Path) -> bytes:
    buffer = io.BytesIO()
    torch.save(_Bomb(marker), buffer)
    return buffer.getvalue()


def _as_list_in_torch_file(marker: Path) -> bytes:
    buffer = io.BytesIO()
    torch.save({"weight": torch.ones(2), "extra": _Bomb(marker)}, buffer)
    return buffer.getvalue()


_BOMBS = {"pickle": _as_pickle, "torch.save": _as_torch_file, "beside tensors": _as_list_in_torch_file}


@pytest.fixture(scope="module")
def good_files() -> dict[str, bytes]:
    """A real TorchScript file and a real export."""
    traced, exported = io.BytesIO(), io.BytesIO()
    with pytest.warns(DeprecationWarning, match="torch.jit"):
        torch.jit.save(torch.jit.trace(_Doubler(), torch.ones(1, 4)), traced)  # type: ignore[no-untyped-call]
    rows = torch.export.Dim("rows", min=1, max=8)
    torch.export.save(torch.export.export(_Doubler(), (torch.ones(2, 4),), dynamic_shapes=({0: rows},)), exported)
    return {"torchscript": traced.getvalue(), "torch_export": exported.getvalue()}


_FILE_NAMES = {"torchscript": "model.pt", "torch_export": "model.pt2"}


def _write(models: Path, runtime: str, content: bytes, name: str = "weights") -> None:
    folder = write_python_model(models, name, "", top=EXPLICIT)
    (folder / "model.toml").write_text((folder / "model.toml").read_text().replace('"python"', f'"{runtime}"'))
    for file in (folder / "1").iterdir():
        if file.is_file():
            file.unlink()
    (folder / "1" / _FILE_NAMES[runtime]).write_bytes(content)


def _with_record(archive: bytes, record: str, content: bytes) -> bytes:
    """The same archive with one record replaced, or added; a valid archive, whatever is in it."""
    result = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as source, zipfile.ZipFile(result, "w", zipfile.ZIP_STORED) as target:
        for name in source.namelist():
            target.writestr(name, content if name == record else source.read(name))
        if record not in source.namelist():
            target.writestr(record, content)
    return result.getvalue()


def _records(archive: bytes) -> list[str]:
    with zipfile.ZipFile(io.BytesIO(archive)) as source:
        return source.namelist()


def _refused(shared: SharedServer, marker: Path) -> str:
    """The load fails, and nothing was run; the message."""
    failed = shared.calls.failure(pb.RepositoryModelLoadRequest(model_name="weights"), method="RepositoryModelLoad")
    assert failed.code == "FAILED_PRECONDITION", failed
    assert not marker.exists(), "code of a model file was run"
    assert str(shared.models) not in failed.message
    assert shared.calls.index()["weights"].reason
    return failed.message


@pytest.mark.parametrize("runtime", _FILE_NAMES)
def test_good_files_load_and_run(watched: SharedServer, good_files: dict[str, bytes], runtime: str) -> None:
    _write(watched.models, runtime, good_files[runtime])
    watched.calls.load("weights")
    assert output_of(watched.calls.infer(request_of("weights", rows_of(1, 3)))).tolist() == [[2.0] * 4, [6.0] * 4]
    watched.calls.unload("weights")


@pytest.mark.parametrize("bomb", _BOMBS)
@pytest.mark.parametrize("runtime", _FILE_NAMES)
def test_a_file_that_is_a_bomb(watched: SharedServer, tmp_path: Path, runtime: str, bomb: str) -> None:
    marker = tmp_path / "marker"
    _write(watched.models, runtime, _BOMBS[bomb](marker))
    _refused(watched, marker)


@pytest.mark.parametrize("runtime", _FILE_NAMES)
def test_a_bomb_in_any_record_of_a_good_archive(
    watched: SharedServer, good_files: dict[str, bytes], tmp_path: Path, runtime: str
) -> None:
    """Some records are never read as a pickle, and the model then loads: what counts is that nothing runs."""
    marker = tmp_path / "marker"
    refused = 0
    for record in _records(good_files[runtime]):
        for bomb in (_as_pickle, _as_torch_file):
            _write(watched.models, runtime, _with_record(good_files[runtime], record, bomb(marker)))
            request = pb.RepositoryModelLoadRequest(model_name="weights")
            outcome = watched.calls.start(request, method="RepositoryModelLoad").outcome()
            assert not marker.exists(), f"{record} was run"
            refused += getattr(outcome, "code", "") == "FAILED_PRECONDITION"
            watched.calls.unload("weights")
    assert refused >= 4


def test_an_export_whose_shapes_are_code(watched: SharedServer, good_files: dict[str, bytes], tmp_path: Path) -> None:
    """torch hands shape expressions to sympy, which evaluates them as Python."""
    marker = tmp_path / "marker"
    archive = good_files["torch_export"]
    (record,) = [name for name in _records(archive) if name.endswith("models/model.json")]
    with zipfile.ZipFile(io.BytesIO(archive)) as source:
        graph = source.read(record).decode()
    for code in (
        f"__import__('os').mkdir('{marker}')",
        f"Add('__import__(\\'os\\').mkdir(\\'{marker}\\')')".replace("\\", "\\\\"),
        f"(lambda: 0).__globals__['__builtins__']['__import__']('os').mkdir('{marker}')",
    ):
        forged, count = re.subn(r'"expr_str": "[^"]*"', lambda _, code=code: f'"expr_str": "{code}"', graph)  # type: ignore[misc]
        assert count
        _write(watched.models, "torch_export", _with_record(archive, record, forged.encode()))
        assert "no arithmetic" in _refused(watched, marker)


def test_an_export_that_calls_what_is_no_operator(
    watched: SharedServer, good_files: dict[str, bytes], tmp_path: Path
) -> None:
    archive = good_files["torch_export"]
    (record,) = [name for name in _records(archive) if name.endswith("models/model.json")]
    with zipfile.ZipFile(io.BytesIO(archive)) as source:
        graph = source.read(record).decode()
    forged, count = re.subn(r"torch\.ops\.aten\.mul\.Tensor", "torch.hub.os.mkdir", graph)
    assert count
    _write(watched.models, "torch_export", _with_record(archive, record, forged.encode()))
    assert "no operator" in _refused(watched, tmp_path / "marker")


def test_an_export_with_machine_code(watched: SharedServer, good_files: dict[str, bytes], tmp_path: Path) -> None:
    archive = good_files["torch_export"]
    top = _records(archive)[0].partition("/")[0]
    for name in ("model.so", "model.cpp"):
        _write(
            watched.models, "torch_export", _with_record(archive, f"{top}/data/aotinductor/model/{name}", b"\x7fELF")
        )
        assert "compiled code" in _refused(watched, tmp_path / "marker")


@pytest.mark.parametrize("runtime", _FILE_NAMES)
@pytest.mark.parametrize("size", [0, 3, 100, -20, -1])
def test_truncated(
    watched: SharedServer, good_files: dict[str, bytes], tmp_path: Path, runtime: str, size: int
) -> None:
    _write(watched.models, runtime, good_files[runtime][:size])
    message = _refused(watched, tmp_path / "marker")
    assert "weights" in message


def test_requests_are_never_unpickled(watched: SharedServer, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    bomb = _as_pickle(marker)
    tensor = Tensor([1], None, "BYTES", typed={"bytes_contents": [bomb]})
    answer = watched.calls.infer(request_of("line_bytes", tensor, parameters={"pickle": bomb.decode("latin-1")}))
    assert list(answer.outputs[0].contents.bytes_contents) == [bomb]
    assert not marker.exists()


def _sockets(pid: int) -> Iterator[Any]:
    yield from psutil.Process(pid).net_connections(kind="all")


def test_nobody_else_can_reach_a_worker(watched: SharedServer) -> None:
    """Its sockets are pairs without a name, its memory has no name, and nothing is in /dev/shm."""
    for worker in watched.server.workers():
        assert all(not connection.laddr and not connection.raddr for connection in _sockets(worker.pid))
        mapped = [region.path for region in worker.memory_maps(grouped=False)]
        assert not [path for path in mapped if path.startswith("/dev/shm")]
        assert any(path.startswith("/memfd:moorage-lane") for path in mapped)
    listening = [c for c in _sockets(watched.server.pid) if c.status == psutil.CONN_LISTEN]
    assert {connection.laddr.ip.removeprefix("::ffff:") for connection in listening} == {"127.0.0.1"}
    assert len(listening) == 2, "gRPC and HTTP"
