"""Who waits for a load or an unload to end, or for a hold."""

import asyncio
from collections import defaultdict

from moorage.domain.errors import MoorageError
from moorage.domain.model import ModelKey

_Waiters = defaultdict[ModelKey, list[asyncio.Future[None]]]


class Settlements:
    """Any number may wait for the same load or unload, and one for each hold; each is told once."""

    def __init__(self) -> None:
        self._loads: _Waiters = defaultdict(list)
        self._unloads: _Waiters = defaultdict(list)
        self._holds: dict[int, asyncio.Future[None]] = {}

    def await_load(self, key: ModelKey) -> asyncio.Future[None]:
        """A future that ends with the load: with its error, if it failed."""
        return self._add(self._loads, key)

    def await_unload(self, key: ModelKey) -> asyncio.Future[None]:
        return self._add(self._unloads, key)

    def _add(self, waiters: _Waiters, key: ModelKey) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiters[key].append(future)
        return future

    def loaded(self, key: ModelKey, error: MoorageError | None) -> None:
        for future in self._loads.pop(key, []):
            if not future.done():
                future.set_exception(error) if error else future.set_result(None)

    def unloaded(self, key: ModelKey) -> None:
        for future in self._unloads.pop(key, []):
            if not future.done():
                future.set_result(None)

    def await_hold(self, hold_id: int) -> asyncio.Future[None]:
        """A future that ends when the hold has its bytes: with an error, if it never will.

        Cancelled, it is forgotten: nobody settles a hold that is released while it waits.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._holds[hold_id] = future
        future.add_done_callback(lambda _: self._holds.pop(hold_id, None))
        return future

    def hold_settled(self, hold_id: int, error: MoorageError | None) -> None:
        future = self._holds.pop(hold_id, None)
        if future is not None and not future.done():
            future.set_exception(error) if error else future.set_result(None)

    def abandon(self, error: MoorageError) -> None:
        """Nothing will settle any more."""
        for key in list(self._loads):
            self.loaded(key, error)
        for key in list(self._unloads):
            self.unloaded(key)
        for hold_id in list(self._holds):
            self.hold_settled(hold_id, error)
