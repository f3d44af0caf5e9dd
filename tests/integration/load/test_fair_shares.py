"""The trial of fair shares, cut short."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.integration.load.fair_shares import VARIANTS, measure


@pytest.mark.parametrize("weights", VARIANTS, ids=["equal", "two to one"])
def test_a_flood_of_one_model_leaves_the_other_its_share(tmp_path: Path, weights: Mapping[str, float]) -> None:
    shares = measure(tmp_path, weights, seconds=4.0)
    assert not shares.faults, shares
