"""The shape of the house, as far as no linter counts it."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("server", "clients/python", "protos/python", "tests", "examples", "benchmarks")
MODULES = sorted(file for folder in FOLDERS for file in (ROOT / folder).rglob("*.py"))
MOST_LINES = 300


@pytest.mark.parametrize("module", MODULES, ids=lambda module: str(module.relative_to(ROOT)))
def test_no_module_is_too_long(module: Path) -> None:
    assert len(module.read_text().splitlines()) <= MOST_LINES


def test_no_room_for_leftovers() -> None:
    leftovers = {"utils", "helpers", "common", "misc"}
    assert not [module for module in MODULES if leftovers & {module.stem, module.parent.name}]
