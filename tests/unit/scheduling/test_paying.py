"""How many rows of a run pay, as runs show it."""

from collections.abc import Callable

import pytest

from moorage.scheduling.estimates import RunSeconds
from moorage.scheduling.paying import PayingRows, paying_rows

Cost = Callable[[int], float]


def steep(rows: int) -> float:
    """A run costs as much as nine rows."""
    return 0.0045 + 0.0005 * rows


def flat(rows: int) -> float:
    """Rows take as long together as apart."""
    return 0.016 * rows


def too_large(rows: int) -> float:
    """Measured of MiniLM on one core: beyond 8 rows each takes longer."""
    return rows * {1: 0.0267, 2: 0.0211, 4: 0.019, 8: 0.0167, 16: 0.0170, 32: 0.0195}[1 << rows.bit_length() - 1]


def seen(cost: Cost, *sizes: int) -> RunSeconds:
    seconds = RunSeconds()
    for rows in sizes:
        for _ in range(3):
            seconds.note(rows, cost(rows))
    return seconds


ALL = (1, 2, 4, 8, 16, 32)


@pytest.mark.parametrize(("cost", "expected"), [(steep, 32), (flat, 2), (too_large, 8)])
def test_of_all_that_is_known_the_fewest_that_take_hardly_more_a_row(cost: Cost, expected: int) -> None:
    assert paying_rows(seen(cost, *ALL), 32, 32) == expected


def test_as_many_as_may_be_while_little_is_known() -> None:
    assert paying_rows(seen(flat, 32), 32, 32) == 32
    assert paying_rows(seen(flat, 1), 32, 32) == 32
    once = RunSeconds()
    for rows in ALL:
        once.note(rows, flat(rows))
    assert paying_rows(once, 32, 32) == 32


def test_a_size_between_known_ones_is_tried_only_where_it_may_pay() -> None:
    assert paying_rows(seen(too_large, 1, 32), 32, 32) == 16
    assert paying_rows(seen(steep, 1, 32), 32, 32) == 32


def test_larger_sizes_than_were_seen_are_tried_where_there_are_so_many() -> None:
    """An MLP reads all its weights for one row as for four: two rows in a run seem to take as long as apart."""
    seconds = seen(lambda rows: {1: 0.005, 2: 0.0105}[rows], 1, 2)
    assert paying_rows(seconds, 32, 8) == 8
    assert paying_rows(seconds, 32, 3) == 2


def test_the_most_of_a_model_need_be_no_power_of_two() -> None:
    assert paying_rows(seen(steep, 1, 2, 4, 8, 16, 24), 24, 24) == 24
    assert paying_rows(seen(steep, 1), 1, 1) == 1


def closed_loop(cost: Callable[[int, int], float], runs: int, most_rows: int = 32) -> list[int]:
    """The rows of each run where always enough wait; the first come alone. cost: by the run's number and its rows."""
    seconds, paying, sizes = RunSeconds(), PayingRows(most_rows), []
    for number in range(runs):
        rows = 1 if number < 3 else paying.rows
        seconds.note(rows, cost(number, rows))
        paying.ran(seconds, most_rows)
        sizes.append(rows)
    return sizes


def test_runs_find_what_pays_and_stay_with_it() -> None:
    sizes = closed_loop(lambda _, rows: too_large(rows), 400)
    assert sizes[3:6] == [32, 32, 32]
    assert sizes[20:].count(8) >= 0.9 * len(sizes[20:])


def test_a_model_whose_larger_runs_are_quicker_by_the_row_hardly_runs_others() -> None:
    sizes = closed_loop(lambda _, rows: steep(rows), 400)
    assert sizes[3:].count(32) >= 0.98 * len(sizes[3:])


@pytest.mark.parametrize(("before", "after", "expected"), [(too_large, steep, 32), (steep, too_large, 8)])
def test_what_has_changed_is_found_in_time(before: Cost, after: Cost, expected: int) -> None:
    sizes = closed_loop(lambda number, rows: (before if number < 200 else after)(rows), 3000)
    assert sizes[-300:].count(expected) >= 0.9 * 300


def test_one_slow_run_does_not_make_smaller_ones_of_all() -> None:
    sizes = closed_loop(lambda number, rows: steep(rows) * (10 if number == 3 else 1), 100)
    assert sizes[-50:].count(32) >= 48
