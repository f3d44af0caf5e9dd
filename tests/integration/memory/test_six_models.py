"""Six models that do not fit together are served as if they did, and no byte more is used than there is."""

from pathlib import Path

import pytest

from tests.integration.memory.six_models import BUDGET_BYTES, NAMES, try_six_models

BESIDE_THE_BUDGET = 1.15


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("first_priority", "requests"),
    [((), 1500), ((NAMES[1], NAMES[5]), 500)],  # by hand, with 3,000 of both: see six_models
    ids=["all alike", "two of priority 1"],
)
def test_six_models_share_the_memory_of_three(tmp_path: Path, first_priority: tuple[str, ...], requests: int) -> None:
    outcome = try_six_models(tmp_path, requests, first_priority)
    print(outcome.report())  # noqa: T201  the figures, with -s
    assert outcome.wrong == 0
    assert outcome.over_budget == 0
    assert outcome.most_leased_bytes <= BUDGET_BYTES
    assert outcome.peak_bytes - outcome.base_bytes <= BESIDE_THE_BUDGET * BUDGET_BYTES
    assert sum(map(len, outcome.latencies_s.values())) == requests
    assert all(outcome.latencies_s.values())
    counts = {model.name: model.residency_counts for model in outcome.last.models if model.name in NAMES}
    assert all(counts[name].loads == 1 for name in NAMES), "it should have been offloaded, not unloaded"
    assert sum(counts[name].evictions for name in NAMES) >= len(NAMES)
