"""Standing changed and bytes held for others: one step for whoever asks, however much is posted at the same time."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from moorage.domain.errors import MemoryExhausted, ModelNotFound, ServerDraining
from moorage.domain.model import MemoryPolicy, ModelKey, SharePolicy
from moorage.engine.holding import hold
from moorage.engine.inquiry import set_share
from moorage.scheduling.actions import Action
from moorage.scheduling.events import Event, HoldRequested, ModelRegistered, ShareChanged
from tests.unit.engine.test_engine import KEY, SPEC, House, content, with_house

OTHER = ModelKey("other", 1)
WORKSPACE = MemoryPolicy(workspace_fixed_bytes=900)


def changed(**fields: Any) -> Callable[[SharePolicy], SharePolicy]:
    return lambda share: replace(share, **fields)


async def with_another(house: House) -> None:
    house.engine.post(ModelRegistered(OTHER, replace(SPEC, name="other", memory=WORKSPACE)))
    await house.engine.load(OTHER)


def share_of(house: House, key: ModelKey = KEY) -> SharePolicy:
    return house.engine.scheduler.state.models[key].share


def test_changes_in_one_turn_of_the_loop_do_not_undo_each_other() -> None:
    async def scenario(house: House) -> None:
        assert set_share(house.engine, KEY, changed(priority=1)) == SharePolicy(priority=1)
        assert set_share(house.engine, KEY, changed(pinned=True)) == SharePolicy(priority=1, pinned=True)
        assert share_of(house) == SharePolicy(priority=1, pinned=True)
        await house.settle()
        assert share_of(house) == SharePolicy(priority=1, pinned=True)

    with_house(scenario)


def test_of_two_reservations_that_do_not_both_fit_the_second_is_refused() -> None:
    async def scenario(house: House) -> None:
        await with_another(house)
        set_share(house.engine, KEY, changed(reserved_bytes=600))
        with pytest.raises(MemoryExhausted) as refused:
            set_share(house.engine, OTHER, changed(reserved_bytes=600))
        assert (refused.value.needed_bytes, refused.value.free_bytes) == (600, 400)
        await house.settle()
        assert [share_of(house, key).reserved_bytes for key in (KEY, OTHER)] == [600, 0]

    with_house(scenario)


def test_a_reservation_sees_what_was_posted_before_it() -> None:
    async def scenario(house: House) -> None:
        now = house.engine.now()
        house.engine.post(HoldRequested(house.engine.next_request_id(), "cpu", 700, 3, now + 30.0))
        with pytest.raises(MemoryExhausted):
            set_share(house.engine, KEY, changed(reserved_bytes=600))
        assert share_of(house) == SharePolicy()

    with_house(scenario)


def test_what_was_due_just_then_may_take_the_room_and_the_change_is_refused() -> None:
    async def scenario(house: House) -> None:
        handle = house.engine.scheduler.handle
        late = [HoldRequested(house.engine.next_request_id(), "cpu", 700, 3, house.engine.now() + 30.0)]

        def overtaken(event: Event, now: float) -> list[Action]:
            first = handle(late.pop(), now) if late and isinstance(event, ShareChanged) else []
            return first + handle(event, now)

        house.engine.scheduler.handle = overtaken  # type: ignore[method-assign]
        with pytest.raises(MemoryExhausted):
            set_share(house.engine, KEY, changed(reserved_bytes=600))
        assert share_of(house) == SharePolicy()

    with_house(scenario)


def test_a_model_that_is_gone_has_no_standing() -> None:
    async def scenario(house: House) -> None:
        await house.engine.unload(KEY)
        with pytest.raises(ModelNotFound):
            set_share(house.engine, KEY, changed(priority=1))

    with_house(scenario)


def test_without_an_owner_nothing_is_changed() -> None:
    async def scenario(house: House) -> None:
        house.owner.cancel()
        await asyncio.gather(house.owner, return_exceptions=True)
        with pytest.raises(ServerDraining):
            set_share(house.engine, KEY, changed(priority=1))
        assert share_of(house) == SharePolicy()

    with_house(scenario)


@pytest.mark.parametrize("ending", ["cancelled", "granted and given back"])
def test_a_hold_that_ends_leaves_nobody_waiting(ending: str) -> None:
    async def scenario(house: House) -> None:
        await with_another(house)
        run = asyncio.create_task(house.engine.infer(house.request(1, key=OTHER), content))
        await house.settle()
        waiting = [asyncio.create_task(hold_shortly(house, 300)) for _ in range(3)]
        await house.settle()
        assert len(house.engine.settlements._holds) == 3
        if ending == "cancelled":
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
            await house.settle()
            assert not house.engine.settlements._holds
        house.workers.finish(house.workers.runs[0])
        await asyncio.gather(run, *waiting, return_exceptions=True)
        await house.settle()
        assert [task.cancelled() for task in waiting] == [ending == "cancelled"] * 3
        assert not house.engine.settlements._holds
        assert not house.engine.scheduler.state.holds

    with_house(scenario)


async def hold_shortly(house: House, size_bytes: int) -> None:
    async with hold(house.engine, "cpu", size_bytes, 3, house.engine.now() + 30.0):
        pass
