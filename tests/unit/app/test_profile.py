import pytest

from moorage.app.profile import Check, Profile, sizes
from moorage.domain.model import MemoryPolicy, ProfiledRun
from moorage.scheduling.workspaces import Workspaces
from tests.support.scheduling import make_spec

MIB = 2**20


@pytest.mark.parametrize(
    ("most_rows", "profiled", "between"),
    [
        (1, [1], []),
        (2, [1, 2], []),
        (4, [1, 2, 3, 4], []),
        (6, [1, 2, 3, 4, 6], [5]),
        (8, [1, 2, 3, 4, 6, 8], [5, 7]),
        (32, [1, 2, 3, 4, 6, 8, 12, 16, 24, 32], [5, 7, 10, 14, 20, 28]),
    ],
)
def test_sizes_grow_by_a_half_or_a_third_up_to_the_largest_and_those_between_check_them(
    most_rows: int, profiled: list[int], between: list[int]
) -> None:
    assert sizes(most_rows) == (profiled, between)


@pytest.mark.parametrize("most_rows", [100, 1000, 65536, 10**6])
def test_no_more_sizes_are_profiled_than_are_kept(most_rows: int) -> None:
    profiled, between = sizes(most_rows)
    workspaces = Workspaces(MemoryPolicy(), tuple(ProfiledRun(rows, 64, rows, None, 0.1) for rows in profiled))
    assert [peak.rows for _, peak in workspaces.peaks()] == profiled
    assert profiled[-1] == most_rows
    assert not set(between) & set(profiled)


def profile(*runs: ProfiledRun, budget_bytes: int = 1000 * MIB) -> Profile:
    return Profile(make_spec(), "cpu", 80 * MIB, 20 * MIB, budget_bytes, runs, (), margin=1.0)


def test_as_many_rows_are_safe_as_the_last_line_has_room_for() -> None:
    (limit,) = profile(
        ProfiledRun(1, 64, 20 * MIB, None, 0.1),
        ProfiledRun(2, 64, 22 * MIB, None, 0.1),
        ProfiledRun(4, 64, 30 * MIB, None, 0.1),
    ).limits
    # Four MiB a row from two rows on, and 14 besides: 900 MiB are room for 221.
    assert (limit.row_bytes, limit.per_row_bytes, limit.fixed_bytes) == (64, 4 * MIB, 14 * MIB)
    assert limit.most_rows == 221


def test_each_size_of_row_has_a_limit() -> None:
    limits = profile(ProfiledRun(1, 10, MIB, None, 0.1), ProfiledRun(1, 1000, 100 * MIB, None, 0.1)).limits
    assert [(limit.row_bytes, limit.most_rows) for limit in limits] == [(10, 900), (1000, 9)]


def test_where_nothing_fits_no_row_is_safe_and_where_rows_take_nothing_memory_sets_no_limit() -> None:
    assert profile(ProfiledRun(1, 64, 2000 * MIB, None, 0.1)).limits[0].most_rows == 0
    level = profile(ProfiledRun(1, 64, MIB, None, 0.1), ProfiledRun(8, 64, MIB, None, 0.1))
    assert level.limits[0].most_rows is None


def test_a_check_says_by_what_part_more_was_foreseen() -> None:
    assert Check(ProfiledRun(3, 64, 100, None, 0.1), 110).error == pytest.approx(0.1)
    assert Check(ProfiledRun(3, 64, 0, None, 0.1), 0).error == 0.0
