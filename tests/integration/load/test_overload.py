"""The trial of overload, cut short."""

from pathlib import Path

from tests.integration.load.overload import measure


def test_under_three_times_its_capacity_it_does_what_it_can(tmp_path: Path) -> None:
    outcome = measure(tmp_path, seconds=6.0)
    assert not outcome.faults, outcome
