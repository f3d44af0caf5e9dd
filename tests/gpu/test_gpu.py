"""The checks as tests: on a card where there is one, and on a CPU to see that they still work."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def _run(*options: str, limit_s: float) -> subprocess.CompletedProcess[str]:
    command = [str(ROOT / "tests/gpu/run.sh"), *options]
    environment = {**os.environ, "PYTHON": sys.executable}
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=limit_s, check=False)


@pytest.mark.timeout(400)
@pytest.mark.usefixtures("card")
def test_all_is_well_on_a_card() -> None:
    done = _run(limit_s=370)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif("TEST_EXAMPLES" not in os.environ, reason="half a minute, for `make soak`")
@pytest.mark.timeout(260)
def test_the_same_checks_work_on_a_cpu() -> None:
    done = _run("--device", "cpu", "--scale", "0.01", limit_s=240)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = done.stdout.splitlines()
    assert rows[0].split() == ["check", "figure", "aim"]
    assert sum(row.endswith(" ok") for row in rows) == 9, done.stdout
