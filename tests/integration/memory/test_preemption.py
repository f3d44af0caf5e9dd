"""Urgent requests do not wait behind long recordings: one of these gives way at its next step, and loses nothing."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.integration.memory import preemption
from tests.integration.memory.preemption import try_preemption
from tests.integration.memory.preemption_trial import AGED, LONG, SHORT, Outcome, Phase, Trial
from tests.support.memory_watch import LedgerWatch

# On cores that others use too the two halves of a trial differ by more than a lone run may: MOST_LOST_SHARE there.
_MOST_LOST_SHARE = 0.3


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    outcome = try_preemption(tmp_path_factory.mktemp("preemption"), SHORT)
    print(outcome.report())  # noqa: T201  the figures, with -s
    return outcome


@pytest.mark.parametrize("trial", [SHORT, LONG])
def test_only_a_state_that_goes_makes_room_for_an_urgent_request(trial: Trial) -> None:
    """Checks the trial itself: what the end of a step frees is too little."""
    assert trial.urgent_bytes > trial.budget_bytes - trial.together * trial.state_bytes - 5 * 2**20
    assert trial.clients > trial.together


@pytest.mark.timeout(180)
def test_an_urgent_request_starts_after_the_step_under_way_and_costs_the_others_little(outcome: Outcome) -> None:
    """Preempted recordings are answered as if they had not been; the budget holds."""
    assert outcome.problems(_MOST_LOST_SHARE) == []


@pytest.mark.timeout(180)
def test_the_command_fails_where_a_trial_shows_what_should_not_be(
    outcome: Outcome, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    silent = [(number, np.zeros_like(heard)) for number, heard in outcome.disturbed.outputs]
    slow = Phase(seconds=10 * outcome.disturbed.seconds, outputs=outcome.disturbed.outputs)
    cases = {
        "answers differ": replace(outcome, disturbed=Phase(outcome.disturbed.seconds, silent)),
        "recordings answered": replace(outcome, disturbed=Phase(outcome.disturbed.seconds, [])),
        "only 0 urgent requests came": replace(outcome, arrivals=[]),
        "lost beside the urgent runs": replace(outcome, disturbed=slow),
        "over budget in": replace(outcome, ledger=_over_budget(outcome.ledger)),
    }
    monkeypatch.setattr("sys.argv", ["preemption", "short"])
    monkeypatch.setattr(Outcome, "report", lambda outcome: "")
    for says, wrong in cases.items():
        monkeypatch.setattr(preemption, "try_preemption", lambda folder, trial, wrong=wrong: wrong)
        assert preemption.main() == 1
        assert says in capsys.readouterr().out
    monkeypatch.setattr(preemption, "try_preemption", lambda folder, trial: outcome)
    monkeypatch.setattr(preemption, "MOST_LOST_SHARE", _MOST_LOST_SHARE)
    assert preemption.main() == 0


def _over_budget(ledger: LedgerWatch) -> LedgerWatch:
    snapshot = ledger.snapshots[-1]
    devices = tuple(replace(device, capacity_bytes=0, leased_bytes={"weights": 1}) for device in snapshot.devices)
    return LedgerWatch([replace(snapshot, devices=devices)])


@pytest.mark.timeout(180)
def test_recordings_that_have_waited_long_do_not_hold_urgent_requests_up(tmp_path: Path) -> None:
    """Ageing raises a waiting request's place in the queue, never its right to preempt. And what gave way for somebody
    does not take the room back before that one has had it.
    """
    outcome = try_preemption(tmp_path, AGED)
    print(outcome.report())  # noqa: T201  as above
    assert max(outcome.steps_first()) <= 1, outcome.steps_first()
    assert outcome.preemptions <= 2 * len(outcome.arrivals)
    assert outcome.differing == 0
