"""Waiting inside a loop for what comes about by itself, for a bounded time."""

import asyncio
import inspect
from collections.abc import Callable


async def until(look: Callable[[], object], *, within_s: float = 10.0) -> None:
    """Return once `look`, or what it returns to be awaited, is truthy. Raises TimeoutError where it never is."""
    async with asyncio.timeout(within_s):
        while not await _seen(look):  # noqa: ASYNC110  what is waited for has no event to tell of it
            await asyncio.sleep(0.01)


async def _seen(look: Callable[[], object]) -> object:
    found = look()
    return await found if inspect.isawaitable(found) else found
