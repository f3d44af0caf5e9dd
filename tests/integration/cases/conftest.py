"""One server for all trials that leave it as it was."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.after_check import Baseline, after_check
from tests.support.calls import Calls, calls_to
from tests.support.polling import eventually
from tests.support.running_server import RunningServer, running_server
from tests.support.sentinel import sentinel
from tests.support.toy_models import ECHO, EXPLICIT, POISON, SLOW, TAG, write_python_model, write_simulated_model

_DOUBLE = """
    from moorage import Model

    class Double(Model):
        def infer(self, inputs, batch):
            return {"y": inputs["x"] + inputs["x"]}
"""

# The first column of what came in, cut to nothing.
_NOTHING = """
    from moorage import Model

    class Nothing(Model):
        def infer(self, inputs, batch):
            return {"y": inputs["x"][:, :0]}
"""

_TWO_INPUTS = """
    runtime = "python"
    inputs = [{ name = "a", datatype = "FP32", shape = [4] }, { name = "b", datatype = "FP32", shape = [4] }]
    outputs = [{ name = "y", datatype = "FP32", shape = [4] }]
"""

_SUM = """
    from moorage import Model

    class Sum(Model):
        def infer(self, inputs, batch):
            return {"y": inputs["a"] + inputs["b"]}
"""


@dataclass(frozen=True)
class SharedServer:
    """server: the process. models: its repository. calls: a channel to it. baseline: how it was at first."""

    server: RunningServer
    models: Path
    calls: Calls
    baseline: Baseline


def write_models(root: Path) -> None:
    """The toys that the trials on the shared server call."""
    write_python_model(root, "echo", ECHO, extra='[memory]\nweights = "1 MiB"')
    write_python_model(root, "slow", SLOW)
    write_python_model(root, "tag", TAG)
    write_python_model(root, "poison", POISON)
    write_python_model(root, "rows", ECHO, shape="[-1]")  # a batch axis, and a free one
    write_python_model(root, "nothing", _NOTHING, shape="[-1]")
    write_python_model(root, "line", ECHO, shape="[-1]", max_batch_size=0)
    write_python_model(root, "sheet", ECHO, shape="[-1, -1]", max_batch_size=0)
    write_python_model(root, "scalar", ECHO, shape="[]", max_batch_size=0)
    for datatype in ("BYTES", "INT8", "INT64", "BOOL", "FP16", "BF16"):
        write_python_model(root, f"line_{datatype.lower()}", ECHO, datatype=datatype, shape="[-1]", max_batch_size=0)
    for datatype in ("FP16", "BF16"):
        write_python_model(root, f"double_{datatype.lower()}", _DOUBLE, datatype=datatype, shape="[-1]")
    write_simulated_model(root, "cold", load_s=0.3, top='load = "on_demand"')
    write_simulated_model(root, "manual", top=EXPLICIT)
    two = write_python_model(root, "two", _SUM)
    (two / "model.toml").write_text(_TWO_INPUTS)


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedServer]:
    folder = tmp_path_factory.mktemp("shared")
    write_models(folder / "models")
    with running_server(folder / "models", folder) as server, calls_to(server.grpc) as calls:
        eventually(calls.is_ready, within_s=50.0, what="the server is ready")
        yield SharedServer(server, folder / "models", calls, Baseline.of(server, calls))


@pytest.fixture
def watched(shared_server: SharedServer) -> Iterator[SharedServer]:
    """The shared server with a sentinel beside the trial and the after-check behind it."""
    with sentinel(shared_server.server.grpc):
        yield shared_server
    after_check(shared_server.server, shared_server.calls, shared_server.baseline)
