"""Six models that do not fit together are served as if they did, and no byte more is used than there is."""

from dataclasses import replace
from pathlib import Path

import pytest

from moorage_client import ModelPolicy, ModelStatus, ResidencyCounts, Snapshot
from tests.integration.memory import six_models
from tests.integration.memory.six_models import BUDGET_BYTES, NAMES, VARIANTS, Outcome, try_six_models


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("first_priority", "requests"),
    [(VARIANTS[0], 900), (VARIANTS[1], 300)],  # in `make soak` 3,000 of both: see six_models
    ids=["all alike", "two of priority 1"],
)
def test_six_models_share_the_memory_of_three(tmp_path: Path, first_priority: tuple[str, ...], requests: int) -> None:
    outcome = try_six_models(tmp_path, requests, first_priority)
    print(outcome.report())  # noqa: T201  the figures, with -s
    assert outcome.problems(requests) == []


def _fine() -> Outcome:
    model = ModelStatus(
        name="",
        version="1",
        state="resident",
        ready=True,
        reason="",
        device="cpu",
        leased_bytes={},
        host_bytes=0,
        policy=ModelPolicy(priority=3, reserved_bytes=0, limit_bytes=None, pinned=False),
        waiting_rows=0,
        running_requests=0,
        residency_counts=ResidencyCounts(loads=1, evictions=1, restores=1, preemptions=0),
    )
    return Outcome(
        seconds=1.0,
        latencies_s={name: [0.1] for name in NAMES},
        wrong=0,
        snapshots=1,
        over_budget=0,
        most_leased_bytes=BUDGET_BYTES,
        base_bytes=0,
        peak_bytes=BUDGET_BYTES,
        samples=1,
        last=Snapshot(
            ready=True,
            draining=False,
            models=tuple(replace(model, name=name) for name in NAMES),
            broken_models=(),
            devices=(),
        ),
    )


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"wrong": 1}, "1 answers are wrong"),
        ({"over_budget": 2}, "over budget in 2 looks"),
        ({"peak_bytes": 2 * BUDGET_BYTES}, "the worker took"),
        ({"latencies_s": {name: [] for name in NAMES}}, "0 of 6 requests served"),
    ],
)
def test_the_command_fails_where_a_trial_shows_what_should_not_be(
    wrong: dict[str, object], says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the first variant already; the second is well."""
    outcomes = {VARIANTS[0]: replace(_fine(), **wrong), VARIANTS[1]: _fine()}  # type: ignore[arg-type]
    monkeypatch.setattr(Outcome, "report", lambda outcome: "")
    monkeypatch.setattr(six_models, "try_six_models", lambda folder, requests, first: outcomes[first])
    monkeypatch.setattr("sys.argv", ["six_models", "6"])
    assert six_models.main() == 1
    assert f"WRONG: {says}" in capsys.readouterr().out
    outcomes[VARIANTS[0]] = _fine()
    assert six_models.main() == 0
