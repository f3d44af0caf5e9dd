from itertools import pairwise

import pytest

from moorage.domain.model import (
    MemoryPolicy,
    ModelKey,
    ModelState,
    Preemption,
    PreemptionPolicy,
    SharePolicy,
)
from moorage.domain.transitions import TRANSITIONS


@pytest.mark.parametrize(("key", "text"), [(ModelKey("m", 3), "m/3"), (ModelKey("m", 3, generation=2), "m/3+2")])
def test_a_key_names_its_generation_only_where_there_was_one_before(key: ModelKey, text: str) -> None:
    assert str(key) == text


def test_an_understudy_is_no_generation() -> None:
    key = ModelKey("m", 3, generation=-2)
    assert (str(key), key.is_understudy) == ("m/3~2", True)
    assert not ModelKey("m", 3, 2).is_understudy


def test_workspace_grows_with_rows() -> None:
    policy = MemoryPolicy(workspace_fixed_bytes=5, workspace_per_row_bytes=3)
    assert [policy.workspace_bytes(rows) for rows in (0, 1, 4)] == [5, 8, 17]


@pytest.mark.parametrize(
    "way",
    [
        ("loading", "resident", "offloading", "offloaded", "restoring", "resident"),
        ("offloading", "unloading", "unloaded", "loading"),
        ("restoring", "unloading", "unloaded"),
        ("restoring", "loading"),
        ("resident", "loading"),
        ("loading", "failed", "loading"),
        ("unloading", "failed"),
    ],
)
def test_ways_that_a_model_may_go(way: tuple[str, ...]) -> None:
    for before, after in pairwise(map(ModelState, way)):
        assert after in TRANSITIONS[before], f"{before} -> {after}"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("unloaded", "resident"),
        ("offloaded", "resident"),
        ("offloaded", "loading"),
        ("resident", "failed"),
        ("failed", "resident"),
        ("unloading", "resident"),
    ],
)
def test_ways_that_it_may_not_go(before: str, after: str) -> None:
    assert ModelState(after) not in TRANSITIONS[ModelState(before)]


def test_what_nothing_is_declared_of() -> None:
    assert (SharePolicy().priority, SharePolicy().reserved_bytes, SharePolicy().limit_bytes) == (3, 0, None)
    assert (PreemptionPolicy().by, PreemptionPolicy().max_preemptions) == (Preemption.STEP, 3)
    assert not SharePolicy().pinned


def test_every_state_can_be_left_and_reached() -> None:
    assert set(TRANSITIONS) == set(ModelState)
    assert all(TRANSITIONS.values())
    assert set().union(*TRANSITIONS.values()) == set(ModelState)
