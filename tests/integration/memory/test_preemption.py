"""Urgent requests do not wait behind long recordings: one of these gives way at its next step, and loses nothing."""

from pathlib import Path

import pytest

from tests.integration.memory.preemption import try_preemption
from tests.integration.memory.preemption_trial import AGED, LONG, SHORT, Outcome, Trial

# Of the throughput: what preempting may cost beside the urgent runs themselves. On cores that others use too the two
# halves of a trial differ by more than that, so only a lone run by hand is held to 0.1.
MOST_LOST_SHARE = 0.3


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
def test_an_urgent_request_starts_after_the_step_under_way(outcome: Outcome) -> None:
    first = outcome.steps_first()
    assert len(first) >= SHORT.arrivals // 2
    # One may begin while the request is on its way to the server.
    assert max(first) <= 1, first
    assert outcome.preemptions >= SHORT.arrivals // 2
    assert outcome.ledger.over_capacity("cpu") == []


@pytest.mark.timeout(180)
def test_what_was_preempted_is_answered_as_if_it_had_not_been(outcome: Outcome) -> None:
    assert len(outcome.disturbed.outputs) == SHORT.requests
    assert outcome.differing == 0


@pytest.mark.timeout(180)
def test_the_others_lose_little_but_the_time_of_urgent_runs(outcome: Outcome) -> None:
    assert outcome.lost_share <= outcome.urgent_share + MOST_LOST_SHARE


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
