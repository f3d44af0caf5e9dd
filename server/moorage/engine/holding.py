"""Bytes of a device's budget for whoever asks for them, as long as they stay."""

import contextlib
from collections.abc import AsyncIterator

from moorage.domain.errors import ServerDraining
from moorage.engine.engine import Engine
from moorage.scheduling import events


@contextlib.asynccontextmanager
async def hold(engine: Engine, device: str, size_bytes: int, priority: int, deadline_s: float) -> AsyncIterator[None]:
    """Take bytes of a device's budget for as long as one is inside; entering waits for them.

    Raises MemoryExhausted, ModelTooLarge, DeadlineExceeded, InvalidRequest and ServerDraining.
    Cancellation: while it waits nothing is taken; inside, they are given back.
    """
    if engine.scheduler.state.draining:
        raise ServerDraining
    hold_id = engine.next_request_id()
    waiter = engine.settlements.await_hold(hold_id)
    engine.post(events.HoldRequested(hold_id, device, size_bytes, priority, deadline_s))
    try:
        await waiter
        yield
    finally:
        engine.post(events.HoldReleased(hold_id))
