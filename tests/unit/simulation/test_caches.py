"""Plain caches, by hand and against an exhaustive search."""

from collections.abc import Sequence
from functools import cache
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from moorage.simulation.belady import fewest_bytes, next_positions
from moorage.simulation.caches import replay_all, replay_apart

A, B, C, D = range(4)
ALIKE = (1, 1, 1, 1)

orders = st.lists(st.integers(A, D), max_size=9)
sizes = st.tuples(*[st.integers(1, 4)] * 4)


def fewest_by_search(order: Sequence[int], sizes_bytes: Sequence[int], capacity_bytes: int) -> int:
    """Every way to evict, tried."""

    @cache
    def best(position: int, held: frozenset[int]) -> int:
        if position == len(order):
            return 0
        model = order[position]
        if model in held:
            return best(position + 1, held)
        cost_bytes = sizes_bytes[model] if model in order[:position] else 0
        return cost_bytes + min(best(position + 1, kept | {model}) for kept in _kept(held, model))

    def _kept(held: frozenset[int], model: int) -> list[frozenset[int]]:
        room_bytes = capacity_bytes - sizes_bytes[model]
        subsets = [frozenset(subset) for count in range(len(held) + 1) for subset in combinations(sorted(held), count)]
        return [subset for subset in subsets if sum(sizes_bytes[it] for it in subset) <= room_bytes]

    return best(0, frozenset())


def test_next_positions() -> None:
    assert next_positions([A, B, A, C, B]) == [2, 4, 5, 5, 5]


def test_lru_by_hand() -> None:
    # Two places: a b | c for a | b | a for c | c for b
    returns = replay_all([A, B, C, B, A, C], ALIKE, 2)
    assert (returns.lru.count, returns.lru.size_bytes) == (2, 2)


def test_lfu_by_hand() -> None:
    # Two places. a was asked for thrice and stays, so b and c put each other out; lru gives a up, and keeps both.
    returns = replay_all([A, A, A, B, C, B, C, A], ALIKE, 2)
    assert returns.lfu.size_bytes == 2
    assert returns.lru.size_bytes == 1


def test_belady_by_hand() -> None:
    # c takes the place of a, who is needed later than b: only a comes back.
    returns = replay_all([A, B, C, B, C, B, A], ALIKE, 2)
    assert (returns.belady.count, returns.belady.size_bytes) == (1, 1)


def test_belady_puts_out_as_many_as_the_size_asks_for() -> None:
    # c is as large as a and b together, and both come back; d fits beside them.
    returns = replay_all([A, B, C, A, B, D, A, B], (1, 2, 3, 1), 4)
    assert (returns.belady.count, returns.belady.size_bytes) == (1, 2)


def test_the_first_time_is_free() -> None:
    returns = replay_all([A, B, C, D], ALIKE, 1)
    assert (returns.lru.count, returns.lfu.count, returns.belady.count, returns.fewest_bytes) == (0, 0, 0, 0)


def test_what_can_never_fit_is_passed_over() -> None:
    returns = replay_all([A, B, A, B], (1, 5, 1, 1), 2)
    assert (returns.lru.count, returns.fewest_bytes) == (0, 0)


def test_caches_apart_add_up() -> None:
    order = [A, B, A, B]
    together = replay_apart({0: order, 1: order}, ALIKE, (1, 2))
    assert (together.lru.count, together.belady.size_bytes) == (2, 2)


@given(orders, sizes, st.integers(4, 9))
def test_the_optimum_lies_between_the_bounds(order: list[int], sizes_bytes: tuple[int, ...], capacity: int) -> None:
    fewest = fewest_by_search(order, sizes_bytes, capacity)
    returns = replay_all(order, sizes_bytes, capacity)
    assert fewest_bytes(order, sizes_bytes, capacity) <= fewest <= returns.belady.size_bytes
    assert fewest <= min(returns.lru.size_bytes, returns.lfu.size_bytes)


@given(orders, st.integers(1, 4))
def test_belady_is_the_optimum_where_sizes_are_alike(order: list[int], capacity: int) -> None:
    assert replay_all(order, ALIKE, capacity).belady.size_bytes == fewest_by_search(order, ALIKE, capacity)
