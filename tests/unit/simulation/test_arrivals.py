"""Arrivals: the same for the same seed, and distributed as asked."""

from collections import Counter
from itertools import pairwise

import pytest

from moorage.simulation.arrivals import Arrival, Traffic
from moorage.simulation.fleet import assemble
from moorage.simulation.scenario import Scenario
from tests.support.scenarios import scenario

FLEET = """
[[devices]]
name = "cpu"
capacity = "1 GB"
[[models]]
name = "m"
count = 10
weights = { least = "1 MB", most = "100 MB" }
run_s = 1
max_batch_size = 4
[[arrivals]]
"""


def asked(text: str, *, seed: int = 1, requests: int = 2000) -> Scenario:
    return scenario(f"seed = {seed}\nrequests = {requests}\n{FLEET}{text}")


def drawn(of: Scenario) -> list[Arrival]:
    """All arrivals of one open stream."""
    traffic = Traffic(of, assemble(of))
    arrivals = traffic.first()
    while (following := traffic.after_arrival(arrivals[-1])) is not None:
        arrivals.append(following)
    return arrivals


POISSON = """
pattern = "poisson"
rate_per_s = 50
rows = [1, 4]
priority = { 1 = 1, 5 = 3 }
popularity = { zipf = 1.0 }
"""


def test_the_same_seed_gives_the_same_arrivals() -> None:
    assert drawn(asked(POISSON)) == drawn(asked(POISSON))
    assert drawn(asked(POISSON)) != drawn(asked(POISSON, seed=2))


def test_known_arrivals() -> None:
    """On every machine and every Python: if this changes, recorded results can't be compared any more."""
    first = drawn(asked(POISSON, requests=3))
    assert [(it.time_s, it.model, it.rows, it.priority) for it in first] == [
        (0.000336986, 7, 3, 1),
        (0.057453432, 4, 3, 5),
        (0.079156596, 4, 1, 5),
    ]


def test_as_many_as_asked_at_the_rate_asked() -> None:
    arrivals = drawn(asked(POISSON))
    assert len(arrivals) == 2000
    assert arrivals[-1].time_s == pytest.approx(2000 / 50, rel=0.1)
    assert all(earlier.time_s <= later.time_s for earlier, later in pairwise(arrivals))


def test_mixes_are_as_asked() -> None:
    arrivals = drawn(asked(POISSON))
    priorities = Counter(arrival.priority for arrival in arrivals)
    assert priorities[1] / len(arrivals) == pytest.approx(0.25, abs=0.05)
    assert set(priorities) == {1, 5}
    rows = Counter(arrival.rows for arrival in arrivals)
    assert all(rows[count] / len(arrivals) == pytest.approx(0.25, abs=0.05) for count in (1, 2, 3, 4))


def test_popularity_follows_the_ranks() -> None:
    counts = [count for _, count in Counter(arrival.model for arrival in drawn(asked(POISSON))).most_common()]
    harmonic = sum(1 / rank for rank in range(1, 11))
    assert counts[0] / 2000 == pytest.approx(1 / harmonic, rel=0.15)
    assert counts[1] / 2000 == pytest.approx(1 / 2 / harmonic, rel=0.2)


def test_popularity_shifts_after_so_many_requests() -> None:
    shifting = POISSON.replace("zipf = 1.0", "zipf = 3.0, shift_every_requests = 500")
    arrivals = drawn(asked(shifting))
    favourites = [
        Counter(it.model for it in arrivals[at : at + 500]).most_common(1)[0][0] for at in range(0, 2000, 500)
    ]
    assert len(set(favourites)) > 1
    assert len({it.model for it in arrivals[:500]} & {favourites[0]}) == 1


def test_popularity_shifts_after_so_many_seconds() -> None:
    shifting = POISSON.replace("zipf = 1.0", "zipf = 3.0, shift_every_s = 10")
    arrivals = drawn(asked(shifting))
    periods = [[it.model for it in arrivals if at <= it.time_s < at + 10] for at in range(0, 40, 10)]
    assert len({Counter(models).most_common(1)[0][0] for models in periods}) > 1


def test_a_small_share_leaves_most_ranks_alone() -> None:
    shifting = POISSON.replace("zipf = 1.0", "zipf = 1.0, shift_every_requests = 1000, shift_share = 0.2")
    arrivals = drawn(asked(shifting))
    before, after = (Counter(it.model for it in part) for part in (arrivals[:1000], arrivals[1000:]))
    moved = [model for model in before if abs(before[model] - after[model]) > 0.5 * max(before[model], after[model])]
    assert len(moved) <= 4


def test_bursts_are_busy_and_quiet_in_turn() -> None:
    arrivals = drawn(asked('pattern = "bursts"\non_s = 1\noff_s = 3\non_rate_per_s = 100\noff_rate_per_s = 5'))
    busy = sum(arrival.time_s % 4 < 1 for arrival in arrivals)
    assert busy / len(arrivals) == pytest.approx(100 / 115, abs=0.03)


def test_nobody_comes_between_bursts_without_a_rate() -> None:
    arrivals = drawn(asked('pattern = "bursts"\non_s = 1\noff_s = 3\non_rate_per_s = 20'))
    assert len(arrivals) == 2000
    assert all(arrival.time_s % 4 < 1 for arrival in arrivals)


def test_a_closed_loop_waits_for_answers() -> None:
    closed = asked('pattern = "closed_loop"\nclients = 4\nthink_s = 2', requests=6)
    traffic = Traffic(closed, assemble(closed))
    first = traffic.first()
    assert [arrival.time_s for arrival in first] == [0.0, 0.5, 1.0, 1.5]
    assert traffic.after_arrival(first[0]) is None
    following = traffic.after_answer(0, 7.0)
    assert following is not None
    assert following.time_s == 9.0
    assert traffic.after_answer(0, 8.0) is not None
    assert traffic.after_answer(0, 9.0) is None  # six have come


def test_arrivals_end_with_the_duration() -> None:
    arrivals = drawn(scenario(f"duration_s = 2\n{FLEET}{POISSON}"))
    assert 60 < len(arrivals) < 140
    assert arrivals[-1].time_s <= 2


def test_sizes_do_not_depend_on_arrivals() -> None:
    fleet = assemble(asked(POISSON))
    assert fleet.weights_bytes == assemble(asked(POISSON.replace("50", "5"))).weights_bytes
    assert all(10**6 <= size <= 10**8 and size % 10**6 == 0 for size in fleet.weights_bytes)
    assert len(set(fleet.weights_bytes)) > 5
    assert [key.name for key in fleet.keys][:2] == ["m-0", "m-1"]
