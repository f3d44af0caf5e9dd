"""Writing that has to succeed in the end: nothing goes on without it."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from moorage.domain.batch_errors import StoreFailed, StoreFull

T = TypeVar("T")

# A store that refuses is asked again after so long: somebody has to make room.
_AGAIN_S = 1.0

log = logging.getLogger(__name__)


async def until_kept(write: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """What `write` returns, once the store takes it. Cancellation: a write that has begun is waited for."""
    has_warned = False
    while True:
        try:
            return await finished_anyway(write())
        except (StoreFull, StoreFailed) as error:
            if not has_warned:
                has_warned = True
                log.warning("the store of batches does not take outcomes, trying again: %s", error)
        await asyncio.sleep(_AGAIN_S)


async def finished_anyway(work: Coroutine[Any, Any, T]) -> T:
    """What `work` returns. Cancellation: waits for it all the same, so that what is on disk is counted too."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait((task,))
        raise
