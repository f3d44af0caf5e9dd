"""What runs take is measured on the real worker, leased from then on, profiled, and shown."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from moorage.domain.model import ProfiledRun
from moorage.repository.profiles import read_profiles, write_profile
from moorage_client import RunEstimate, SyncClient
from tests.support.running_server import running_server
from tests.support.toy_models import ECHO, write_python_model

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel tells what a process takes on Linux")

MIB = 2**20
ROW_BYTES = 8 * MIB

# Takes 8 MiB for each row, as long as it runs.
HUNGRY = """
    import torch
    from moorage import Model

    class Hungry(Model):
        def infer(self, inputs, batch):
            scratch = torch.ones(batch.rows, 2 * 2**20)
            return {"y": inputs["x"] + scratch[:, :4]}
"""

# Keeps 4 MiB of each request, and takes 16 for each row in every step.
STEPPING = """
    import torch
    from moorage import Step, SteppedModel

    class Stepping(SteppedModel):
        def start(self, inputs, request):
            return {"x": inputs["x"].clone(), "kept": torch.ones(2**20), "steps": 0}

        def step(self, states):
            rows = sum(len(state["x"]) for state in states)
            scratch = torch.ones(rows, 4 * 2**20)
            for state in states:
                state["steps"] += 1
            return [self.taken(state, scratch) for state in states]

        def taken(self, state, scratch):
            return Step({"y": state["x"] + scratch[0, :4]}, True) if state["steps"] == 6 else Step()
"""


@contextmanager
def serving(folder: Path) -> Iterator[SyncClient]:
    with running_server(folder / "models", folder) as server, SyncClient(server.grpc) as client:
        client.wait_until_ready(timeout_s=30.0)
        yield client


def ask(client: SyncClient, model: str, rows: int) -> None:
    x = np.zeros((rows, 4), np.float32)
    assert np.array_equal(client.infer(model, {"x": x})["y"], x + 1)


def estimate(client: SyncClient, model: str, rows: int) -> RunEstimate:
    (found,) = (each for each in client.run_estimates(model) if each.rows == rows)
    return found


def test_runs_are_measured_and_leased_for_what_they_took(tmp_path: Path) -> None:
    write_python_model(tmp_path / "models", "hungry", HUNGRY)
    with serving(tmp_path) as client:
        assert client.run_estimates("hungry") == ()
        for rows in (1, 1, 1, 4, 4, 3):
            ask(client, "hungry", rows)
        for rows in (1, 3, 4):
            known = estimate(client, "hungry", rows)
            assert known.measured_bytes == pytest.approx(rows * ROW_BYTES, rel=0.1)
            assert known.expected_bytes is not None
            assert known.leased_bytes == pytest.approx(1.1 * known.expected_bytes, rel=0.01)
            assert known.row_bytes == 31  # rows of 16 bytes
        assert estimate(client, "hungry", 3).bytes_error == pytest.approx(0.0, abs=0.1)
        assert client.explain("hungry", 8).needed_bytes == pytest.approx(1.1 * 8 * ROW_BYTES, rel=0.1)


def test_a_prediction_that_is_half_of_the_truth_is_corrected_by_the_first_runs(tmp_path: Path) -> None:
    folder = write_python_model(tmp_path / "models", "hungry", HUNGRY)
    half = tuple(ProfiledRun(rows, 16, rows * ROW_BYTES // 2, None, 0.01) for rows in (1, 2, 4, 8))
    write_profile(folder / "1", "cpu", half)
    with serving(tmp_path) as client:
        assert estimate(client, "hungry", 8).expected_bytes == 4 * ROW_BYTES
        for number in range(20):
            ask(client, "hungry", 1 + number % 4)
        for rows in (1, 2, 4, 8):
            assert estimate(client, "hungry", rows).expected_bytes == pytest.approx(rows * ROW_BYTES, rel=0.1)


def test_steps_are_measured_beside_their_states(tmp_path: Path) -> None:
    write_python_model(tmp_path / "models", "stepping", STEPPING)
    with serving(tmp_path) as client:
        for rows in (1, 2):
            ask(client, "stepping", rows)
        for rows in (1, 2):
            assert estimate(client, "stepping", rows).measured_bytes == pytest.approx(rows * 16 * MIB, rel=0.1)


def profile(folder: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "moorage", "profile", *options, "--models", str(folder / "models")]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120.0, env=os.environ)


def test_a_profile_says_what_runs_of_any_size_take(tmp_path: Path) -> None:
    folder = write_python_model(tmp_path / "models", "hungry", HUNGRY)
    done = profile(tmp_path, "hungry", "--budget", "1GiB")
    assert done.returncode == 0, done.stderr
    runs = read_profiles(folder, folder / "1")["cpu"]
    assert [(run.rows, run.row_bytes) for run in runs] == [(rows, 16) for rows in (1, 2, 3, 4, 6, 8)]
    for run in runs:
        assert run.peak_bytes == pytest.approx(run.rows * ROW_BYTES, rel=0.1)
    # 1 GiB is room for 116 rows of 8 MiB and a tenth more.
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("safe max_batch_size"))
    most_rows = int(line.partition("at most ")[2].split()[0])
    assert most_rows == pytest.approx(116, rel=0.05)
    # Sizes between were only looked at, and lie where the profile says.
    errors = [cell for line in done.stdout.splitlines() for cell in line.split() if cell.endswith("%")]
    assert len(errors) == 2
    assert all(abs(int(error.rstrip("%"))) <= 10 for error in errors)


@pytest.mark.parametrize(
    ("options", "exit_code", "says"),
    [
        (("absent",), 1, "absent"),
        (("hungry", "--shape", "x=5"), 2, "--shape x: expected [4], got [5]"),
        (("hungry", "--shape", "z=4"), 2, "has no input 'z'"),
        (("hungry", "--shape", "x=four"), 2, "--shape: expected NAME=SIZE"),
        (("hungry", "--text", "words"), 2, "--text: model 'hungry' must have exactly one BYTES input"),
        (("hungry", "--model-version", "9"), 1, "hungry"),
        (("broken",), 1, "model.toml"),
    ],
)
def test_what_can_not_be_profiled_is_told(tmp_path: Path, options: tuple[str, ...], exit_code: int, says: str) -> None:
    write_python_model(tmp_path / "models", "hungry", HUNGRY)
    write_python_model(tmp_path / "models", "broken", HUNGRY, top="no_such_key = 1")
    done = profile(tmp_path, *options)
    assert done.returncode == exit_code, done.stderr
    assert says in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.rglob("profile.json"))


def test_a_model_without_a_batch_axis_has_runs_of_one_size_and_no_file_is_written_unless_wanted(tmp_path: Path) -> None:
    write_python_model(tmp_path / "models", "echo", ECHO, max_batch_size=0)
    done = profile(tmp_path, "echo", "--no-keep")
    assert done.returncode == 0, done.stderr
    assert "echo/1 on cpu" in done.stdout
    assert not list(tmp_path.rglob("profile.json"))
