"""Loading and unloading by name: what is on disk meets what is in memory."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from moorage.domain.errors import ModelNotFound, MoorageError
from moorage.domain.model import Loading, ModelSpec, ModelState
from moorage.engine.catalog import Catalog, Serving
from moorage.engine.engine import Engine
from moorage.engine.ports import Repository
from moorage.scheduling.events import ModelRegistered

log = logging.getLogger(__name__)


class Control:
    """Operators' commands. Several for one model come one after the other, except that an unload never waits."""

    def __init__(self, engine: Engine, catalog: Catalog, repository: Repository) -> None:
        self._engine = engine
        self._catalog = catalog
        self._repository = repository
        self._locks: dict[str, asyncio.Lock] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self.started = asyncio.Event()

    async def start(self) -> None:
        """Register what the repository holds and begin to load what is eager."""
        specs, broken = await asyncio.to_thread(self._repository.scan)
        self._catalog.broken.update(broken)
        for name, reason in broken.items():
            log.error("model %s: %s", name, reason)
        servings = [self._register(spec) for spec in specs]
        for serving in servings:
            self._catalog.put(serving)
        self._spawn(self._load_eager([item for item in servings if item.spec.loading is Loading.EAGER]))

    async def _load_eager(self, servings: list[Serving]) -> None:
        results = await asyncio.gather(*(self._engine.load(item.key) for item in servings), return_exceptions=True)
        for serving, result in zip(servings, results, strict=True):
            if isinstance(result, BaseException):
                log.error("model %s: %s", serving.key, result)
        self.started.set()
        self._engine.changed()

    def _register(self, spec: ModelSpec) -> Serving:
        serving = Serving(self._catalog.new_key(spec), spec)
        self._engine.post(ModelRegistered(serving.key, spec))
        return serving

    async def load(self, name: str) -> None:
        """Bring a model into memory as its folder is now.

        What served before goes on until its successor is ready, and stays if that fails.
        Raises ModelNotFound, LoadFailed, ModelTooLarge, MemoryExhausted. Cancellation: a load that began goes on.
        """
        async with self._locks.setdefault(name, asyncio.Lock()):
            specs = await asyncio.to_thread(self._repository.scan_model, name)
            before = self._catalog.versions_of(name)
            await self._load_all(specs)
            wanted = {spec.version for spec in specs}
            for serving in before:
                if serving.key.version not in wanted:
                    self._catalog.remove(serving)
                    self._spawn(self._engine.unload(serving.key))

    async def _load_all(self, specs: tuple[ModelSpec, ...]) -> None:
        results = await asyncio.gather(*(self._load_one(spec) for spec in specs), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _load_one(self, spec: ModelSpec) -> None:
        current = self._catalog.get(spec.name, spec.version)
        if current is not None and self._is_registered(current) and current.spec.fingerprint == spec.fingerprint:
            await self._engine.load(current.key)
            return
        successor = self._register(spec)
        serves = current is not None and self._state(current) is ModelState.RESIDENT
        if not serves:
            self._replace(current, successor)
        try:
            await self._engine.load(successor.key)
        except MoorageError:
            if serves:
                self._spawn(self._engine.unload(successor.key))
            raise
        if serves:
            self._replace(current, successor)

    def _replace(self, current: Serving | None, successor: Serving) -> None:
        self._catalog.put(successor)
        if current is not None and self._is_registered(current):
            self._spawn(self._engine.unload(current.key))

    def _is_registered(self, serving: Serving) -> bool:
        return self._state(serving) is not None

    def _state(self, serving: Serving) -> ModelState | None:
        model = self._engine.scheduler.state.models.get(serving.key)
        return None if model is None or model.closing else model.state

    async def unload(self, name: str) -> None:
        """Refuse new work, finish what was accepted, and return once the memory is free.

        Raises ModelNotFound. Cancellation: the unload goes on.
        """
        servings = self._catalog.versions_of(name)
        if not servings:
            raise ModelNotFound(name)
        await asyncio.gather(*(self._engine.unload(serving.key) for serving in servings))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._leaving.add(task)
        task.add_done_callback(self._left)

    def _left(self, task: asyncio.Task[None]) -> None:
        self._leaving.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("a background load or unload failed", exc_info=task.exception())

    def close(self) -> None:
        """Stop what still waits."""
        for task in self._leaving:
            task.cancel()
