"""What was measured of models, from one life of the server to the next."""

import asyncio
import logging
from pathlib import Path

from moorage.domain.model import Footprint, ModelSpec
from moorage.engine.engine import Engine
from moorage.engine.inquiry import footprints
from moorage.repository.footprints import FootprintKey, FootprintsRefused, FootprintStore

log = logging.getLogger(__name__)


class Memory:
    """Footprints in a file; without one, nothing is remembered. The file is read and written in threads."""

    def __init__(self, path: Path | None, engine: Engine) -> None:
        self._store = FootprintStore(path) if path is not None else None
        self._engine = engine
        self._known: dict[FootprintKey, Footprint] = {}

    async def recall(self) -> None:
        """Read what is known. Raises FootprintsRefused for a file that is not ours to use."""
        if self._store is not None:
            self._known = await asyncio.to_thread(self._store.load_all)

    def of(self, spec: ModelSpec) -> Footprint:
        """What is known of a model, on whichever device it was measured."""
        for key, footprint in self._known.items():
            if (key.model, key.version, key.fingerprint) == (spec.name, spec.version, spec.fingerprint):
                return footprint
        return Footprint()

    async def keep(self) -> None:
        """Write what has been measured by now. Cancellation: it is written or not."""
        if self._store is None:
            return
        items = {
            FootprintKey(key.name, key.version, device, spec.fingerprint): footprint
            for key, spec, device, footprint in footprints(self._engine)
        }
        try:
            await asyncio.to_thread(self._store.save, items)
        except FootprintsRefused as error:
            log.warning("what was measured of models can't be kept: %s", error)
