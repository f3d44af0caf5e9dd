"""What was measured of models: from one load to the next, and from one life of the server to the next."""

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from moorage.domain.model import Footprint, ModelKey, ModelSpec
from moorage.engine.engine import Engine
from moorage.engine.inquiry import footprints
from moorage.repository.footprint_table import MAX_ENTRIES
from moorage.repository.footprints import FootprintKey, FootprintsRefused, FootprintStore
from moorage.scheduling.actions import Action, UnloadSettled
from moorage.scheduling.events import Event, ModelRegistered
from moorage.scheduling.records import ModelRecord, footprint_of

log = logging.getLogger(__name__)

Key = TypeVar("Key")


class RememberedFootprints:
    """Footprints in a file, which is read and written in threads; without one they last as long as the server.

    It keeps at most as many as the file does, of those that left: the latest.
    """

    def __init__(self, path: Path | None, engine: Engine) -> None:
        self._store = FootprintStore(path) if path is not None else None
        self._engine = engine
        self._models: dict[ModelKey, ModelRecord] = {}
        self._known: dict[tuple[str, int, str], Footprint] = {}
        self._unsaved: dict[FootprintKey, Footprint] = {}

    async def recall(self) -> None:
        """Read what is known. Raises FootprintsRefused for a file that is not ours to use."""
        if self._store is not None:
            latest_first = await asyncio.to_thread(self._store.load_all)
            self._known = {_whose(key): footprint for key, footprint in reversed(latest_first.items())}

    def of(self, spec: ModelSpec) -> Footprint:
        """What is known of a model, on whichever device it was measured last."""
        whose = (spec.name, spec.version, spec.fingerprint)
        # It may still be on its way out, where an unload waits for its runs.
        there = [footprint for key, footprint in self._measured().items() if _whose(key) == whose]
        return there[-1] if there else self._known.get(whose, Footprint())

    def decided(self, event: Event, decided: Sequence[Action]) -> None:
        """Something happened, and this follows from it: what was measured of a model that goes is kept."""
        if isinstance(event, ModelRegistered):
            # The scheduler forgets a model within the step that ends it, so its record is held from its first.
            self._models[event.key] = self._engine.scheduler.state.models[event.key]
        for action in decided:
            if isinstance(action, UnloadSettled):
                self._left(action.key)

    def _left(self, key: ModelKey) -> None:
        model = self._models.pop(key, None)
        if model is None or model.measured.device is None:
            return
        of_it = FootprintKey(key.name, key.version, model.measured.device, model.spec.fingerprint)
        footprint = footprint_of(model, self._engine.now())
        _put(self._known, _whose(of_it), footprint)
        if self._store is not None:
            _put(self._unsaved, of_it, footprint)

    def _measured(self) -> dict[FootprintKey, Footprint]:
        """Of the models that are there."""
        return {
            FootprintKey(key.name, key.version, device, spec.fingerprint): footprint
            for key, spec, device, footprint in footprints(self._engine)
        }

    async def keep(self) -> None:
        """Write what has been measured by now. Cancellation: it is written or not."""
        if self._store is None:
            return
        left = dict(self._unsaved)
        try:
            saved = await asyncio.to_thread(self._store.save, {**left, **self._measured()})
        except FootprintsRefused as error:
            log.warning("what was measured of models can't be kept: %s", error)
            return
        if saved:
            self._unsaved = {key: value for key, value in self._unsaved.items() if left.get(key) is not value}


def _whose(key: FootprintKey) -> tuple[str, int, str]:
    return key.model, key.version, key.fingerprint


def _put(kept: dict[Key, Footprint], key: Key, footprint: Footprint) -> None:
    """Add the latest, and drop the oldest where they are too many."""
    kept.pop(key, None)
    kept[key] = footprint
    if len(kept) > MAX_ENTRIES:
        del kept[next(iter(kept))]
