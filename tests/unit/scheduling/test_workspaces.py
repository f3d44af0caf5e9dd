from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.domain.model import MemoryPolicy, ProfiledRun, SharePolicy
from moorage.domain.request import RehearsedRun, StepResult
from moorage.scheduling import events
from moorage.scheduling.workspaces import MARGIN, Workspaces
from tests.support.core import Core
from tests.support.scheduling import make_spec

MIB = 2**20


def linear(rows: int, *, fixed: int = 10 * MIB, per_row: int = MIB) -> int:
    return fixed + rows * per_row


def learned(*sizes: int, declared: MemoryPolicy | None = None) -> Workspaces:
    workspaces = Workspaces(declared or MemoryPolicy())
    for rows in sizes:
        workspaces.note(rows, 64, linear(rows))
    return workspaces


def test_what_is_declared_counts_before_anything_is_measured() -> None:
    workspaces = Workspaces(MemoryPolicy(workspace_fixed_bytes=5, workspace_per_row_bytes=3))
    assert [workspaces.bytes_for(rows, 10) for rows in (1, 4)] == [8, 17]
    assert not workspaces.has_learned


def test_what_is_declared_is_leased_at_least() -> None:
    declared = MemoryPolicy(workspace_fixed_bytes=64 * MIB)
    assert learned(1, 2, declared=declared).bytes_for(2, 64) == 64 * MIB


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 8, 11, 16, 24])
def test_sizes_between_and_beyond_those_that_were_seen_lie_on_lines(rows: int) -> None:
    assert learned(1, 2, 4, 16).bytes_for(rows, 64) == pytest.approx(MARGIN * linear(rows), rel=1e-6)


def test_from_one_size_a_larger_run_is_taken_in_proportion_and_a_smaller_one_for_as_much() -> None:
    workspaces = learned(4)
    assert workspaces.bytes_for(8, 64) == pytest.approx(2 * MARGIN * linear(4), rel=1e-6)
    assert workspaces.bytes_for(1, 64) == workspaces.bytes_for(4, 64)


def test_a_run_that_takes_more_counts_at_once_and_one_that_takes_less_by_and_by() -> None:
    workspaces = learned(4)
    before_bytes = workspaces.bytes_for(4, 64)
    workspaces.note(4, 64, 10 * linear(4))
    assert workspaces.bytes_for(4, 64) == pytest.approx(10 * before_bytes, rel=1e-6)
    workspaces.note(4, 64, linear(4))
    assert 9 * before_bytes < workspaces.bytes_for(4, 64) < 9.2 * before_bytes
    for _ in range(100):
        workspaces.note(4, 64, linear(4))
    assert workspaces.bytes_for(4, 64) == pytest.approx(before_bytes, rel=0.01)


def test_a_profile_that_is_too_low_is_corrected_for_all_sizes_by_one_run() -> None:
    profile = tuple(ProfiledRun(rows, 64, linear(rows) // 2, 0, 0.01) for rows in (1, 2, 4, 8, 16))
    workspaces = Workspaces(MemoryPolicy(), profile)
    workspaces.note(3, 64, linear(3))
    for rows in (1, 3, 8, 12, 16):
        assert workspaces.bytes_for(rows, 64) == pytest.approx(MARGIN * linear(rows), rel=0.01)


def test_shapes_are_told_apart() -> None:
    workspaces = Workspaces(MemoryPolicy())
    workspaces.note(1, 10, MIB)
    workspaces.note(1, 1000, 50 * MIB)
    short_bytes, long_bytes = workspaces.bytes_for(1, 12), workspaces.bytes_for(1, 900)
    assert short_bytes == int(MARGIN * MIB)
    assert long_bytes == int(MARGIN * 50 * MIB)
    # One that was not seen takes no more than the next larger.
    assert workspaces.bytes_for(1, 100) == long_bytes
    assert workspaces.bytes_for(1) == long_bytes


def test_beyond_the_largest_shape_more_is_expected_unless_something_is_declared() -> None:
    workspaces = Workspaces(MemoryPolicy())
    workspaces.note(1, 15, MIB)
    assert workspaces.bytes_for(1, 60) == int(MARGIN * 4 * MIB)
    declaring = Workspaces(MemoryPolicy(workspace_fixed_bytes=3 * MIB))
    declaring.note(1, 15, MIB)
    assert declaring.bytes_for(1, 60) == 3 * MIB


def test_no_more_is_leased_than_a_run_could_be_given() -> None:
    workspaces = learned(1, 2, declared=MemoryPolicy(workspace_fixed_bytes=MIB))
    workspaces.most_bytes = 4 * MIB
    assert workspaces.bytes_for(2, 64) == 4 * MIB
    assert workspaces.bytes_for(2, 64, beside_bytes=2 * MIB) == 2 * MIB
    assert workspaces.bytes_for(2, 64, beside_bytes=9 * MIB) == MIB
    workspaces.most_bytes = 0
    assert workspaces.bytes_for(2, 64) == MIB


notes = st.lists(st.tuples(st.integers(1, 64), st.integers(0, 2**12), st.integers(0, 2**30)), min_size=1, max_size=80)


@given(notes, st.integers(1, 200), st.integers(0, 2**14), st.integers(0, 8), st.integers(0, 2**10))
def test_a_larger_run_never_takes_less(
    noted: list[tuple[int, int, int]], rows: int, row_bytes: int, more_rows: int, more_bytes: int
) -> None:
    workspaces = Workspaces(MemoryPolicy(workspace_per_row_bytes=7))
    for each in noted:
        workspaces.note(*each)
    larger = workspaces.bytes_for(rows + more_rows, row_bytes + more_bytes)
    assert larger >= workspaces.bytes_for(rows, row_bytes) >= 7 * rows
    assert workspaces.bytes_for(rows) >= 0


@given(notes)
def test_the_latest_run_of_a_size_is_covered(noted: list[tuple[int, int, int]]) -> None:
    workspaces = Workspaces(MemoryPolicy())
    for rows, row_bytes, size_bytes in noted[:20]:
        workspaces.note(rows, row_bytes, size_bytes)
        assert workspaces.bytes_for(rows, row_bytes) >= size_bytes


@given(notes)
def test_what_is_kept_is_bounded(noted: list[tuple[int, int, int]]) -> None:
    workspaces = Workspaces(MemoryPolicy())
    for rows, row_bytes, size_bytes in noted:
        workspaces.note(rows, row_bytes, size_bytes)
    assert sum(1 for _ in workspaces.peaks()) <= len({(rows, size.bit_length()) for rows, size, _ in noted})
    assert all(peak.runs > 0 for _, peak in workspaces.peaks())


def test_runs_lease_what_was_measured_of_runs_before() -> None:
    core = Core(cpu=100 * MIB)
    core.resident(make_spec(weights=MIB, max_batch_size=8))
    core.ask(1, rows=2)
    assert core.kinds().get("workspace", 0) == 0
    core.finish(1, peak_bytes=20 * MIB)
    core.ask(2, rows=2)
    assert core.kinds()["workspace"] == int(MARGIN * 20 * MIB)
    assert core.explain(rows=4).needed_bytes == int(MARGIN * 40 * MIB)


def test_a_step_leases_what_was_measured_of_steps_before() -> None:
    core = Core(cpu=100 * MIB)
    key = core.resident(make_spec(weights=MIB, max_batch_size=8, steps=3, state=MIB))
    core.ask(1)
    run = core.model(key).run
    assert run is not None
    core.send(events.StepFinished(run.run_id, (StepResult(1, done=False, state_bytes=MIB),), 20 * MIB))
    assert core.kinds()["workspace"] == int(MARGIN * 20 * MIB)


def test_a_model_whose_runs_seem_to_take_more_than_there_is_runs_all_the_same() -> None:
    core = Core(cpu=100 * MIB)
    core.resident(make_spec(weights=10 * MIB, max_batch_size=8))
    core.ask(1)
    core.finish(1, peak_bytes=500 * MIB)
    assert core.ask(2) == ["execute 2"]
    assert core.kinds()["workspace"] == 90 * MIB


def test_a_profile_counts_from_the_first_run() -> None:
    core = Core(cpu=100 * MIB)
    profile = (ProfiledRun(1, 1, 10 * MIB, 10 * MIB, 0.25), ProfiledRun(4, 1, 40 * MIB, 40 * MIB, 0.5))
    spec = replace(make_spec(weights=MIB, max_batch_size=8), profiles={"cpu": profile, "cuda": profile[:1]})
    key = core.resident(spec)
    core.ask(1, rows=2)
    assert core.kinds()["workspace"] == int(MARGIN * 20 * MIB)
    assert core.model(key).seconds.expected_s(4) == 0.5


def test_a_step_that_seems_to_take_more_than_its_limit_leaves_is_taken_all_the_same() -> None:
    core = Core(cpu=100 * MIB)
    share = SharePolicy(limit_bytes=12 * MIB)
    key = core.resident(make_spec(weights=MIB, per_row=MIB, max_batch_size=2, steps=9, state=6 * MIB, share=share))
    core.ask(1)
    run = core.model(key).run
    assert run is not None
    core.send(events.StepFinished(run.run_id, (StepResult(1, done=False, state_bytes=9 * MIB),), 50 * MIB))
    assert core.model(key).run is not None
    assert core.kinds() == {"weights": MIB, "state": 9 * MIB, "workspace": 3 * MIB}


def test_what_was_measured_gives_way_to_what_can_be_had_beside_what_stays() -> None:
    core = Core(cpu=100 * MIB)
    core.resident(make_spec("pinned", weights=60 * MIB, share=SharePolicy(pinned=True)))
    key = core.resident(make_spec(weights=MIB))
    core.ask(1)
    core.finish(1, peak_bytes=80 * MIB)
    assert core.explain(key).needed_bytes == int(MARGIN * 80 * MIB)
    assert core.ask(2) == ["execute 2"]
    assert core.kinds()["workspace"] == 39 * MIB


def test_it_gives_way_to_a_limit_that_was_set_since() -> None:
    core = Core(cpu=100 * MIB)
    key = core.resident(make_spec(weights=MIB, max_batch_size=2, steps=2, state=3 * MIB))
    core.ask(1)
    run = core.model(key).run
    assert run is not None
    core.send(events.StepFinished(run.run_id, (StepResult(1, done=True, state_bytes=0),), 50 * MIB))
    core.send(events.ShareChanged(key, SharePolicy(limit_bytes=12 * MIB)))
    assert core.ask(2) == ["starting 2"]
    assert core.kinds() == {"weights": MIB, "state": 3 * MIB, "workspace": 9 * MIB}


def test_a_warm_up_that_was_measured_counts_from_the_first_run() -> None:
    core = Core(cpu=100 * MIB)
    key = core.register(make_spec(weights=MIB))
    core.load(key)
    core.up()
    core.send(events.ModelLoaded(key, MIB, rehearsed=(RehearsedRun(2, 1, 20 * MIB),)))
    core.ask(1, rows=2)
    assert core.kinds()["workspace"] == int(MARGIN * 20 * MIB)
