import pytest

from moorage.domain.model import TRANSITIONS, MemoryPolicy, ModelKey, ModelState


@pytest.mark.parametrize(("key", "text"), [(ModelKey("m", 3), "m/3"), (ModelKey("m", 3, generation=2), "m/3+2")])
def test_a_key_names_its_generation_only_where_there_was_one_before(key: ModelKey, text: str) -> None:
    assert str(key) == text


def test_workspace_grows_with_rows() -> None:
    policy = MemoryPolicy(workspace_fixed_bytes=5, workspace_per_row_bytes=3)
    assert [policy.workspace_bytes(rows) for rows in (0, 1, 4)] == [5, 8, 17]


def test_every_state_can_be_left_and_reached() -> None:
    assert set(TRANSITIONS) == set(ModelState)
    assert all(TRANSITIONS.values())
    assert set().union(*TRANSITIONS.values()) == set(ModelState)
