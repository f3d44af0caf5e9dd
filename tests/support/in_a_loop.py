"""The aio client from a test that is no coroutine."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from moorage_client import Client
from tests.support.protocol_server import Behaviour

Result = TypeVar("Result")


def with_client(server: Behaviour, use: Callable[[Client], Awaitable[Result]]) -> Result:
    """What `use` makes of an aio client, in a loop of its own."""

    async def run() -> Result:
        async with Client(server.target) as client:
            return await use(client)

    return asyncio.run(run())
