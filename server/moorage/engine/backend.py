"""What the edges see of the server: one object with everything a request or a view needs."""

from collections.abc import Callable
from functools import partial

from moorage.domain.errors import InvalidRequest, ModelNotReady
from moorage.domain.model import ModelKey, ModelSpec, SharePolicy
from moorage.engine.catalog import Catalog, Serving
from moorage.engine.control import Control
from moorage.engine.engine import Engine
from moorage.engine.holding import hold
from moorage.engine.inquiry import estimates, explain, set_share
from moorage.engine.snapshot import ServerSnapshot
from moorage.engine.view import take_snapshot
from moorage.scheduling.admission import is_ready
from moorage.scheduling.explain import Explanation
from moorage.scheduling.foreseen import RunEstimate


class Backend:
    """Joins engine, catalog and control."""

    def __init__(self, engine: Engine, catalog: Catalog, control: Control) -> None:
        self._engine = engine
        self._catalog = catalog
        self._control = control
        self.next_request_id = engine.next_request_id
        self.infer = engine.infer
        self.begin = engine.begin
        self.give_up = engine.give_up
        self.pause = engine.pause
        self.resume = engine.resume
        self.now = engine.now
        self.subscribe = engine.subscribe
        self.unsubscribe = engine.unsubscribe
        self.hold = partial(hold, engine)
        self.load = control.load
        self.unload = control.unload

    def resolve(self, name: str, version: str) -> tuple[ModelKey, ModelSpec]:
        """The model that serves a name and version ("" for the latest that is ready, else the latest).

        Raises ModelNotFound, or ModelNotReady for one that is unloaded or broken.
        """
        serving = self._catalog.resolve(name, version)
        if not version and not self._is_ready(serving):
            # A newer version that is still loading, or that failed, does not stand before one that serves.
            serving = next(filter(self._is_ready, reversed(self._catalog.versions_of(name))), serving)
        if serving.key not in self._engine.scheduler.state.models:
            raise ModelNotReady(name, "unloaded")
        return serving.key, serving.spec

    def _is_ready(self, serving: Serving) -> bool:
        state = self._engine.scheduler.state
        record = state.models.get(serving.key)
        return record is not None and is_ready(state, record)

    def snapshot(self) -> ServerSnapshot:
        return take_snapshot(self._engine, self._catalog, started=self._control.started.is_set())

    async def set_share(self, name: str, version: str, change: Callable[[SharePolicy], SharePolicy]) -> SharePolicy:
        """Give a version of a model another standing; answers the new one.

        Raises ModelNotFound, MemoryExhausted for a reservation that is not free, and ServerDraining.
        Cancellation: it is made or not.
        """
        key = self._catalog.resolve(name, version).key
        return set_share(self._engine, key, change)

    def explain(self, name: str, version: str, rows: int, priority: int) -> Explanation:
        """What would happen if the model were asked for so many rows now. priority: 0 for the model's own.

        Raises ModelNotFound, ModelNotReady for a model that is unloaded or matches no device, and InvalidRequest.
        """
        key, spec = self.resolve(name, version)
        most = max(1, spec.max_request_rows)
        if not 1 <= rows <= most:
            limit = "max_queue_rows" if most > max(1, spec.max_batch_size) else "max_batch_size"
            raise InvalidRequest("rows", expected=f"from 1 to {limit} {most}", got=str(rows))
        explanation = explain(self._engine, key, rows, priority)
        if explanation is None:
            raise ModelNotReady(name, f"no device of this server matches placement.devices = {', '.join(spec.devices)}")
        return explanation

    def run_estimates(self, name: str, version: str) -> tuple[RunEstimate, ...]:
        """What is expected of a model's runs, by their size. Raises ModelNotFound, ModelNotReady as resolve does."""
        key, _ = self.resolve(name, version)
        return estimates(self._engine, key)
