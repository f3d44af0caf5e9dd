"""One server for all trials that leave it as it was."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from moorage_client import SyncClient
from tests.support.after_check import Baseline, after_check
from tests.support.calls import Calls, calls_to, request_of, rows_of
from tests.support.polling import eventually
from tests.support.running_server import RunningServer, running_server
from tests.support.sentinel import sentinel
from tests.support.toy_models import (
    DEDICATED,
    ECHO,
    EXPLICIT,
    ON_DEMAND,
    POISON,
    SLOW,
    TAG,
    write_python_model,
    write_simulated_model,
)

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

WEIGHTS_BYTES, RUN_BYTES = 2 * 2**20, 3 * 2**20
WITH_MEMORY = f'[memory]\nweights = "{WEIGHTS_BYTES} B"\nworkspace_fixed = "{RUN_BYTES} B"\n'


@dataclass(frozen=True)
class SharedServer:
    """server: the process. models: its repository. calls: a channel to it. baseline: how it was at first."""

    server: RunningServer
    models: Path
    calls: Calls
    baseline: Baseline

    def running_requests(self, model: str) -> int:
        """How many of a model's are being computed."""
        with SyncClient(self.server.grpc) as client:
            return next(entry.running_requests for entry in client.snapshot().models if entry.name == model)


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
    write_simulated_model(root, "cold", load_s=0.3, top=ON_DEMAND)
    write_simulated_model(root, "waking", load_s=0.4, top=ON_DEMAND, extra=WITH_MEMORY)
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
    with trial_of(shared_server) as trial:
        yield trial


@contextmanager
def small_server(
    folder: Path, *, weights_mib: Mapping[str, int], min_residency_s: float = 0.0, **devices_cpu: str
) -> Iterator[SharedServer]:
    """A server with a budget of 10 MiB for the models in folder/models. devices_cpu: more of its device's table.

    It has slots for whoever comes, so that trials are about memory alone; its echo has a process of its own.
    weights_mib: of each model that may be in memory after a trial.
    """
    write_python_model(folder / "models", "echo", ECHO, extra=DEDICATED)
    device = {"run_slots": "16", **devices_cpu}
    environment = {f"MOORAGE_DEVICES__CPU__{key.upper()}": value for key, value in device.items()}
    environment["MOORAGE_SERVER__MIN_RESIDENCY_S"] = str(min_residency_s)
    with (
        running_server(folder / "models", folder, budget="10MiB", environment=environment) as server,
        calls_to(server.grpc) as calls,
    ):
        eventually(calls.is_ready, within_s=50.0, what="the server is ready")
        calls.infer(request_of("echo", rows_of(0)))
        may_hold = {name: mib * 2**20 for name, mib in weights_mib.items()}
        baseline = replace(Baseline.of(server, calls), models=may_hold)
        yield SharedServer(server, folder / "models", calls, baseline)


@contextmanager
def trial_of(shared: SharedServer) -> Iterator[SharedServer]:
    """A sentinel beside a trial, and the after-check behind it."""
    with sentinel(shared.server.grpc):
        yield shared
    after_check(shared.server, shared.calls, shared.baseline)
