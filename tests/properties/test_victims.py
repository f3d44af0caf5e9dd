"""The choice of victims against everything else that could have been chosen."""

from collections.abc import Iterator, Sequence
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.domain.model import ModelKey
from moorage.scheduling.victims import Victim, Way, choose


@st.composite
def stages(draw: st.DrawFn) -> list[list[Victim]]:
    """A few stages of victims, each of another model, as where nobody waits for others to go first."""
    sizes = draw(st.lists(st.lists(st.integers(0, 20), max_size=4), max_size=3))
    victims: list[list[Victim]] = []
    number = 0
    for stage in sizes:
        victims.append([])
        way = draw(st.sampled_from([Way.EVICT, Way.SUSPEND]))
        for size_bytes in stage:
            number += 1
            priority, worth = draw(st.integers(1, 3)), draw(st.sampled_from([0.0, 0.5, 1.0]))
            victims[-1].append(Victim(way, ModelKey(f"m{number}", 1), size_bytes, priority, worth))
    return victims


def freed(victims: Sequence[Victim]) -> int:
    return sum(victim.size_bytes for victim in victims)


def lost(victims: Sequence[Victim]) -> float:
    return sum(victim.worth * victim.size_bytes for victim in victims)


def severity(candidates: list[list[Victim]], victim: Victim) -> tuple[int, int, float]:
    """How late somebody may be touched: by stage, then by priority, then by worth."""
    stage = next(number for number, stage in enumerate(candidates) if victim in stage)
    return (stage, -victim.priority, victim.worth)


@settings(max_examples=500, deadline=None)
@given(candidates=stages(), needed_bytes=st.integers(1, 80))
def test_it_is_enough_and_nobody_could_be_spared(candidates: list[list[Victim]], needed_bytes: int) -> None:
    everybody = [victim for stage in candidates for victim in stage]
    chosen = choose(candidates, needed_bytes)
    if chosen is None:
        assert freed(everybody) < needed_bytes
        return
    assert freed(chosen) >= needed_bytes
    for victim in chosen:
        assert freed(chosen) - victim.size_bytes < needed_bytes, f"{victim} went for nothing"


@settings(max_examples=500, deadline=None)
@given(candidates=stages(), needed_bytes=st.integers(1, 80))
def test_nobody_is_touched_before_all_milder_ones_are_not_enough(
    candidates: list[list[Victim]], needed_bytes: int
) -> None:
    """By stage and by priority, and of idle weights by worth as well."""
    chosen = choose(candidates, needed_bytes) or []
    everybody = [victim for stage in candidates for victim in stage]
    for victim in chosen:
        parts = 2 if victim.way is Way.SUSPEND else 3
        touched = severity(candidates, victim)[:parts]
        milder = [other for other in everybody if severity(candidates, other)[:parts] < touched]
        assert freed(milder) < needed_bytes, f"{victim} went though {milder} would have done"


@settings(max_examples=500, deadline=None)
@given(
    victims=st.lists(st.tuples(st.integers(1, 20), st.floats(0.0, 1.0)), min_size=1, max_size=7),
    needed_bytes=st.integers(1, 80),
)
def test_what_is_lost_is_at_most_twice_what_had_to_be(victims: list[tuple[int, float]], needed_bytes: int) -> None:
    everybody = [
        Victim(Way.SUSPEND, ModelKey(f"m{number}", 1), size_bytes, 3, worth)
        for number, (size_bytes, worth) in enumerate(victims)
    ]
    chosen = choose([everybody], needed_bytes)
    if chosen is None:
        return
    enough = [
        part
        for count in range(1, len(everybody) + 1)
        for part in combinations(everybody, count)
        if freed(part) >= needed_bytes
    ]
    assert lost(chosen) <= 2 * min(lost(part) for part in enough) + 1e-9


@pytest.mark.parametrize("way", [Way.SUSPEND, Way.EVICT])
def test_running_work_that_costs_less_than_two_others_goes_alone(way: Way) -> None:
    sizes = [(9, 0.1), (9, 0.2), (10, 0.21)]
    victims = [Victim(way, ModelKey(f"m{size}{worth}", 1), size, 3, worth) for size, worth in sizes]
    assert choose([victims], 10) == (victims[2:] if way is Way.SUSPEND else victims[:2])


@settings(max_examples=300, deadline=None)
@given(candidates=stages(), needed_bytes=st.integers(1, 80))
def test_they_go_in_order_and_the_order_they_were_named_in_means_nothing(
    candidates: list[list[Victim]], needed_bytes: int
) -> None:
    chosen = choose(candidates, needed_bytes)
    assert choose([stage[::-1] for stage in candidates], needed_bytes) == chosen
    ranks = [severity(candidates, victim) for victim in chosen or []]
    assert ranks == sorted(ranks)


@settings(max_examples=300, deadline=None)
@given(candidates=stages(), needed_bytes=st.integers(1, 80))
def test_no_smaller_set_of_the_mildest_would_have_done(candidates: list[list[Victim]], needed_bytes: int) -> None:
    """Of those that were chosen, no part is enough."""
    chosen = choose(candidates, needed_bytes) or []
    for count in range(len(chosen)):
        assert all(freed(part) < needed_bytes for part in combinations(chosen, count))


@settings(max_examples=300, deadline=None)
@given(
    states=st.lists(st.integers(1, 20), min_size=1, max_size=4),
    weights_bytes=st.integers(1, 20),
    needed_bytes=st.integers(1, 100),
)
def test_weights_that_go_after_states_take_all_of_them_along(
    states: list[int], weights_bytes: int, needed_bytes: int
) -> None:
    key = ModelKey("m", 1)
    first = [Victim(Way.SUSPEND, key, size, 4, 0.0, request_id=number) for number, size in enumerate(states, start=1)]
    weights = Victim(Way.EVICT, key, weights_bytes, 4, 0.0, after_others=True)
    chosen = choose([first, [weights]], needed_bytes)
    if chosen is None:
        assert sum(states) + weights_bytes < needed_bytes
    elif weights in chosen:
        assert sum(states) < needed_bytes
        assert set(chosen) == {*first, weights}
    else:
        assert freed(chosen) >= needed_bytes


def test_later_stages_are_not_even_looked_at() -> None:
    enough = Victim(Way.EVICT, ModelKey("m", 1), 10, 3, 0.0)

    def lazily() -> Iterator[list[Victim]]:
        yield [enough]
        raise AssertionError("looked at")

    assert choose(lazily(), 10) == [enough]
