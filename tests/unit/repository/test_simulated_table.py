"""The table of a simulated model in model.toml."""

from pathlib import Path

import pytest

from moorage.domain.model import SimulatedCosts
from moorage.repository.errors import ManifestError
from moorage.repository.files import FileSummary
from moorage.repository.manifest import parse_manifest
from moorage.repository.specs import spec_of
from tests.support.model_folders import SIMULATED


def costs(table: str) -> SimulatedCosts:
    manifest = parse_manifest(f"{SIMULATED}\n[simulated]\n{table}".encode(), "any")
    return spec_of(manifest, "any", 1, Path("any/1"), FileSummary("", 0)).simulated


def test_every_key_reaches_the_spec() -> None:
    table = 'load_s = 1.0\nrestore_s = 2.0\nrun_s = 3.0\nrun_s_per_row = 4.0\nsteps = 5\nstate = "6 KiB"'
    assert costs(table) == SimulatedCosts(
        load_s=1.0, restore_s=2.0, run_s=3.0, run_s_per_row=4.0, steps=5, state_bytes=6 * 1024
    )


def test_it_takes_no_time_and_one_step_by_default() -> None:
    assert costs("") == SimulatedCosts(0.0, 0.0, 0.0, 0.0, 1, 0)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("steps = 0", "simulated.steps: expected steps from 1 to 1048576, got 0"),
        ("steps = 1.5", "simulated.steps: expected steps from 1 to 1048576, got 1.5"),
        ("steps = true", "simulated.steps: expected steps from 1 to 1048576, got True"),
        ("state = '1,5 GiB'", "simulated.state: expected bytes such as"),
        ("restore_s = -1.0", "simulated.restore_s: expected seconds from 0 to 604800, got -1.0"),
        ("step = 1", "simulated: unknown key 'step', did you mean 'steps'?"),
    ],
)
def test_a_wrong_value_is_named(line: str, problem: str) -> None:
    with pytest.raises(ManifestError) as caught:
        costs(line)
    (found,) = caught.value.problems
    assert found.startswith(f"model.toml: {problem}")
