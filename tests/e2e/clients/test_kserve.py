"""KServe's gRPC client, in an environment of its own: `make fetch-kserve`."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.e2e.clients.served_examples import NAMES, ServedExample
from tests.support.running_server import RunningServer

ROOT = Path(__file__).resolve().parents[3]
PYTHON = ROOT / ".venv-kserve" / "bin" / "python"
SCRIPT = Path(__file__).with_name("kserve_client.py")
SOURCES = ("server", "clients/python", "protos/python")
RUN_LIMIT_S = 90.0  # the first import of kserve compiles some 2000 files

pytestmark = [
    pytest.mark.kserve,
    pytest.mark.timeout(120),
    pytest.mark.skipif(not PYTHON.exists(), reason="no .venv-kserve here: make fetch-kserve"),
]

# tritonclient is not among them: it and kserve declare the same names in protobuf's one default pool, and whichever
# comes second fails, with or without us.
OURS = ("moorage", "moorage_client", "moorage_protocol.inference")
THEIRS = ("kserve",)
EXCHANGE = """
from kserve.protocol.grpc import grpc_predict_v2_pb2 as theirs
from moorage_protocol import inference as ours

request = ours.ModelInferRequest(model_name="identity", id="17", raw_input_contents=[b"\\x00\\xff"])
request.parameters["timeout"].int64_param = 1000
arrived = theirs.ModelInferRequest.FromString(request.SerializeToString())
assert type(arrived) is not type(request)
assert ours.ModelInferRequest.FromString(arrived.SerializeToString()) == request
"""


def run(*arguments: str) -> str:
    """The stdout of KServe's Python, which also finds our sources: they need nothing that it lacks."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(str(ROOT / source) for source in SOURCES)}
    outcome = subprocess.run(
        [str(PYTHON), *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=RUN_LIMIT_S,
        env=environment,
    )
    assert outcome.returncode == 0, outcome.stderr
    return outcome.stdout


@pytest.fixture(scope="module")
def conversation(
    server: RunningServer, examples: dict[str, ServedExample], tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the client heard of the server, and its answers by MODEL/OUTPUT/ENCODING."""
    folder = tmp_path_factory.mktemp("kserve")
    inputs = {f"{example.model}/{example.input_name}": example.values for example in examples.values()}
    np.savez(folder / "inputs.npz", allow_pickle=False, **inputs)
    heard = run(str(SCRIPT), server.grpc, str(folder / "inputs.npz"), str(folder / "outputs.npz"))
    with np.load(folder / "outputs.npz") as outputs:
        return json.loads(heard), dict(outputs)


def test_health(conversation: tuple[dict[str, Any], dict[str, Any]]) -> None:
    heard, _ = conversation
    assert heard == {
        "live": True,
        "ready": True,
        "unknown_model_ready": False,
        "unknown_model_infer": "NOT_FOUND",
        "models": dict.fromkeys(NAMES, True),
    }


@pytest.mark.parametrize("encoding", ["raw", "typed"])
@pytest.mark.parametrize("name", NAMES)
def test_infer(
    conversation: tuple[dict[str, Any], dict[str, Any]],
    examples: dict[str, ServedExample],
    name: str,
    encoding: str,
) -> None:
    _, answers = conversation
    examples[name].check(answers[f"{name}/{examples[name].output_name}/{encoding}"])


@pytest.mark.parametrize("order", [OURS + THEIRS, THEIRS + OURS], ids=["kserve last", "kserve first"])
def test_imports_in_one_process(order: tuple[str, ...]) -> None:
    run("-c", "\n".join(f"import {package}" for package in order) + EXCHANGE)
