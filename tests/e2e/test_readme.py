"""What the documents show is what happens: their code blocks, run as they stand on a real server."""

import os
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from moorage.config import load_settings
from moorage_client import SyncClient
from tests.support.running_server import RunningServer, running_server

ROOT = Path(__file__).parents[2]
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NAMED_FILE = re.compile(r"# (models/\S+)\n")
ADDRESS = "127.0.0.1:8001"
COMMAND = ".venv/bin/moorage"


@dataclass(frozen=True)
class Block:
    """One fenced block. file: the path in its first line, where it is a file of a model."""

    language: str
    text: str

    @property
    def file(self) -> str | None:
        named = NAMED_FILE.match(self.text)
        return named[1] if named else None


def blocks(document: str, *languages: str) -> list[Block]:
    found = [Block(*match) for match in FENCED.findall((ROOT / document).read_text())]
    return [block for block in found if not languages or block.language in languages]


def shell_lines() -> list[str]:
    """The README's lines for the shell; `make` is what runs these tests."""
    text = "".join(block.text for block in blocks("README.md", "sh"))
    return [line for line in text.splitlines() if not line.startswith("make ")]


def snippets() -> list[str]:
    return [block.text for block in blocks("README.md", "python") if block.file is None]


def write_models(document: str, folder: Path) -> list[str]:
    """Write the document's model files into the folder; their paths in it."""
    written = []
    for block in blocks(document):
        if block.file is not None:
            (folder / block.file).parent.mkdir(parents=True, exist_ok=True)
            (folder / block.file).write_text(block.text)
            written.append(block.file)
    return written


def run(arguments: list[str], server: RunningServer) -> str:
    """The output of a command whose default server is this one."""
    variables = {**os.environ, "MOORAGE_TARGET": server.grpc}
    result = subprocess.run(arguments, capture_output=True, text=True, timeout=50, env=variables, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("readme")
    assert write_models("README.md", folder) == ["models/doubler/model.toml", "models/doubler/1/model.py"]
    assert write_models("docs/models.md", folder) == ["models/classifier/model.toml", "models/classifier/1/model.py"]
    version = folder / "models/classifier/1"
    net = runpy.run_path(str(version / "model.py"))["build"]()
    torch.save(net.state_dict(), version / "weights.pt")
    return folder


@pytest.fixture(scope="module")
def server(repository: Path) -> Iterator[RunningServer]:
    serve = next(line for line in shell_lines() if " serve " in line)
    # The repository is elsewhere and the ports are free ones; the budget is the README's.
    shown = re.fullmatch(rf"{re.escape(COMMAND)} serve --models (\S+) --budget (\S+)", serve)
    assert shown is not None
    models, budget = shown.groups()
    with running_server(repository / models, repository, budget=budget) as running:
        with SyncClient(running.grpc) as client:
            client.wait_until_ready(50.0, ["doubler", "classifier"])
        yield running


def test_every_block_of_the_readme_is_of_a_kind_that_is_run() -> None:
    assert {block.language for block in blocks("README.md")} == {"", "sh", "toml", "python"}
    assert all(block.file for block in blocks("README.md", "toml"))
    assert len(snippets()) == 2


def test_the_commands(server: RunningServer) -> None:
    asking = [line for line in shell_lines() if " serve " not in line]
    moorage = f"{shlex.quote(sys.executable)} -m moorage"
    outputs = [run(["bash", "-c", line.replace(COMMAND, moorage)], server) for line in asking]
    listed, inferred = outputs
    assert re.search(r"doubler +1 +resident", listed)
    assert "[[2. 4. 6. 8.]]" in inferred


@pytest.mark.parametrize(("position", "says"), [(0, "[[2. 4. 6. 8.]]"), (1, "[[2. 2. 2. 2.]]")])
def test_the_python_snippets(server: RunningServer, position: int, says: str) -> None:
    snippet = snippets()[position]
    assert ADDRESS in snippet
    assert says in run([sys.executable, "-c", snippet.replace(ADDRESS, server.grpc)], server)


def test_the_model_of_the_models_page(server: RunningServer, repository: Path) -> None:
    images = np.random.default_rng(0).normal(size=(2, 3, 32, 32)).astype(np.float32)
    with SyncClient(server.grpc) as client:
        scores = client.infer("classifier", {"image": images})["scores"]
    weights = torch.load(repository / "models/classifier/1/weights.pt", weights_only=True)
    expected = images.reshape(2, -1) @ weights["1.weight"].numpy().T + weights["1.bias"].numpy()
    np.testing.assert_allclose(scores, expected, rtol=1e-3, atol=1e-4)


def test_the_settings_of_the_operations_page(tmp_path: Path) -> None:
    (settings,) = blocks("docs/operations.md", "toml")
    (tmp_path / "moorage.toml").write_text(settings.text)
    loaded = load_settings(tmp_path / "moorage.toml")
    assert loaded.server.grpc.port == 8001
    assert set(loaded.devices) == {"cpu", "cuda:0"}
