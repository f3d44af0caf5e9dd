"""The choice of victims against everything else that could have been chosen."""

from collections.abc import Iterator, Sequence
from itertools import combinations

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
        for size_bytes in stage:
            number += 1
            priority, worth = draw(st.integers(1, 3)), draw(st.sampled_from([0.0, 0.5, 1.0]))
            victims[-1].append(Victim(Way.EVICT, ModelKey(f"m{number}", 1), size_bytes, priority, worth))
    return victims


def freed(victims: Sequence[Victim]) -> int:
    return sum(victim.size_bytes for victim in victims)


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
    chosen = choose(candidates, needed_bytes) or []
    everybody = [victim for stage in candidates for victim in stage]
    for victim in chosen:
        milder = [other for other in everybody if severity(candidates, other) < severity(candidates, victim)]
        assert freed(milder) < needed_bytes, f"{victim} went though {milder} would have done"


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
