"""The package on both major versions of protobuf that it declares, whichever of them this environment has."""

import os
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]
ROUND_TRIP = Path(__file__).with_name("round_trip.py")


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("major", "prefix", "requirement"),
    [("6", "6.33.", "protobuf>=6.33,<6.34"), ("7", "7.", "protobuf>=7.35,<8")],
    ids=["protobuf-6.33", "protobuf-7"],
)
@pytest.mark.parametrize("implementation", ["upb", "python"])
def test_round_trip_under(major: str, prefix: str, requirement: str, implementation: str) -> None:
    environment = os.environ | {"PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": implementation}
    if not version("protobuf").startswith(prefix):
        environment["PYTHONPATH"] = str(_installed(REPOSITORY / ".cache" / f"protobuf-{major}", requirement))
    command = [sys.executable, "-W", "error", str(ROUND_TRIP), prefix]
    outcome = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert outcome.returncode == 0, outcome.stderr


def _installed(target: Path, requirement: str) -> Path:
    """`target` with the requirement in it, installed by the first test that needs it and kept for later runs."""
    if not target.exists():
        target.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            _pip_install(requirement, Path(folder) / "packages")
            shutil.move(Path(folder) / "packages", target)  # whole or not at all
    return target


def _pip_install(requirement: str, target: Path) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(target), requirement]
    outcome = subprocess.run(command, capture_output=True, text=True, check=False)
    assert outcome.returncode == 0, f"could not install {requirement}, which this test needs:\n{outcome.stderr}"
