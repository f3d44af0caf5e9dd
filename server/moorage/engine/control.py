"""Loading and unloading by name: what is on disk meets what is in memory."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Coroutine
from typing import Any
from weakref import WeakValueDictionary

from moorage.domain.errors import LoadFailed, ModelNotFound, MoorageError
from moorage.domain.model import Footprint, Loading, ModelKey, ModelSpec, ModelState
from moorage.engine.catalog import Catalog, Serving
from moorage.engine.engine import Engine
from moorage.engine.ports import Repository
from moorage.scheduling.events import ModelRegistered
from moorage.scheduling.placement import allows

log = logging.getLogger(__name__)


class Control:
    """Operators' commands. Several for one model come one after the other, except that an unload never waits."""

    def __init__(
        self,
        engine: Engine,
        catalog: Catalog,
        repository: Repository,
        footprint_of: Callable[[ModelSpec], Footprint] = lambda _: Footprint(),
    ) -> None:
        """footprint_of: what is remembered of a model."""
        self._engine = engine
        self._footprint_of = footprint_of
        self._catalog = catalog
        self._repository = repository
        # Weak, since clients choose the names: a lock is there while somebody holds it or waits for it.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._arriving: defaultdict[str, set[ModelKey]] = defaultdict(set)
        self._tasks: set[asyncio.Task[None]] = set()
        self.started = asyncio.Event()

    async def register_all(self) -> None:
        """Register what the repository holds."""
        specs, broken = await asyncio.to_thread(self._repository.scan)
        self._catalog.broken.update(broken)
        for name, reason in broken.items():
            log.error("model %s: %s", name, reason)
        for spec in specs:
            self._catalog.put(self._register(spec))

    def begin(self) -> None:
        """Begin to load what is eager."""
        self._spawn(self._load_eager())

    async def _load_eager(self) -> None:
        # The most important first, should memory not suffice for all; nobody is put out for a model not asked for.
        servings = [item for item in self._catalog.all() if item.spec.loading is Loading.EAGER]
        servings.sort(key=lambda item: item.spec.share.priority)
        loads = (self._engine.load(item.key, may_evict=False) for item in servings)
        results = await asyncio.gather(*loads, return_exceptions=True)
        for serving, result in zip(servings, results, strict=True):
            if isinstance(result, BaseException):
                log.error("model %s: %s", serving.key, result)
        self.started.set()
        self._engine.changed()
        log.info("ready: %d models loaded, %d failed", results.count(None), len(results) - results.count(None))

    def _register(self, spec: ModelSpec) -> Serving:
        self._warn_of_idle_instances(spec)
        serving = Serving(self._catalog.new_key(spec), spec)
        devices = self._engine.scheduler.state.devices
        if spec.fallback and spec.fallback not in devices:
            log.warning(
                "model %s: placement.fallback = '%s' is no device of this server, which has %s: what finds no memory "
                "is refused",
                serving.key,
                spec.fallback,
                ", ".join(devices),
            )
        self._engine.post(ModelRegistered(serving.key, spec, self._footprint_of(spec)))
        return serving

    def _warn_of_idle_instances(self, spec: ModelSpec) -> None:
        devices = self._engine.scheduler.state.devices
        slots = max((device.limits.run_slots for name, device in devices.items() if allows(spec, name)), default=0)
        if 0 < slots < spec.instances:
            text = (
                "model %s: instances = %d, and no device of its has more than %d run_slots: the others compute nothing"
            )
            log.warning(text, spec.name, spec.instances, slots)

    async def load(self, name: str) -> None:
        """Bring a model into memory as its folder is now.

        What served before goes on until its successor is ready, and stays if that fails.
        Raises ModelNotFound, LoadFailed, ModelTooLarge, MemoryExhausted. Cancellation: the load goes on.
        """
        await asyncio.shield(self._spawn(self._load(name)))

    async def _load(self, name: str) -> None:
        async with self._locks.setdefault(name, asyncio.Lock()):
            specs = await self._scan(name)
            before = self._catalog.versions_of(name)
            await self._load_all(specs)
            wanted = {spec.version for spec in specs}
            for serving in before:
                if serving.key.version not in wanted:
                    self._catalog.remove(serving)
                    self._spawn(self._engine.unload(serving.key))

    async def _scan(self, name: str) -> tuple[ModelSpec, ...]:
        """The model as it is on disk. What is wrong with a folder that serves nothing is kept for those who look."""
        try:
            return await asyncio.to_thread(self._repository.scan_model, name)
        except LoadFailed as error:
            if not self._catalog.versions_of(name):
                self._catalog.broken[name] = error.reason
            raise
        except ModelNotFound:
            self._catalog.broken.pop(name, None)
            raise
        finally:
            self._engine.changed()

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
        if current is not None and self._serves(current):
            await self._swap(current, successor)
        else:
            self._replace(current, successor)
            await self._engine.load(successor.key)

    async def _swap(self, current: Serving, successor: Serving) -> None:
        """Load a successor beside what serves, and have it take over, unless it was unloaded meanwhile."""
        arriving = self._arriving[current.key.name]
        arriving.add(successor.key)
        try:
            await self._engine.load(successor.key)
        except MoorageError:
            self._spawn(self._engine.unload(successor.key))
            raise
        finally:
            arriving.discard(successor.key)
        if self._is_registered(successor):
            self._replace(current, successor)

    def _replace(self, current: Serving | None, successor: Serving) -> None:
        self._catalog.put(successor)
        if current is not None and self._is_registered(current):
            self._spawn(self._engine.unload(current.key))

    def _serves(self, serving: Serving) -> bool:
        """Whether its next request would be answered, from wherever its weights are now."""
        model = self._engine.scheduler.state.models.get(serving.key)
        return model is not None and not model.closing and model.in_service and model.state is not ModelState.FAILED

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
        keys = [serving.key for serving in servings] + sorted(self._arriving.get(name, ()))
        await asyncio.gather(*(self._engine.unload(key) for key in keys))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, MoorageError):  # those are told to whoever asked
            log.error("a background load or unload failed", exc_info=error)

    def close(self) -> None:
        """Stop what still waits."""
        for task in self._tasks:
            task.cancel()
