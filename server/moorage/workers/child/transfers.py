"""Loaded models leave the device and come back, on a thread of their own: no load of another keeps them waiting."""

import gc
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from moorage.domain.model import ModelKey
from moorage.workers.child.caches import Caches
from moorage.workers.child.failures import describe, detail_of
from moorage.workers.child.lane import LaneThread
from moorage.workers.child.memory import release_freed_memory, wait_for_device
from moorage.workers.messages import Offloaded, OffloadRefused, Restored, RestoreRefused, Unloaded
from moorage.workers.runtimes import Runtime


@dataclass(frozen=True, slots=True)
class Present:
    """A model that is loaded, its folder, and the threads of its open lanes."""

    runtime: Runtime
    folder: Path
    lanes: Sequence[LaneThread]

    def finish(self) -> None:
        """Wait for the threads, and let the model clean up after itself."""
        finish(self.runtime, self.lanes)


class Transfers:
    """The models that are there. Except for `add`, `in` and `finish_all`, it is for one thread."""

    def __init__(self, device: str, send: Callable[[msgspec.Struct], None], caches: Caches) -> None:
        self._device = device
        self._send = send
        self._caches = caches
        self._models: dict[ModelKey, Present] = {}
        self._tidy: set[ModelKey] = set()

    def add(self, key: ModelKey, model: Present) -> None:
        self._models[key] = model

    def __contains__(self, key: ModelKey) -> bool:
        return key in self._models

    def offload(self, key: ModelKey) -> None:
        """Move a model's weights to the host, and answer."""
        runtime = self._models[key].runtime
        started_s = time.perf_counter()
        try:
            host_bytes = runtime.offload()
        except BaseException as error:  # a model may raise anything, SystemExit too
            answer: msgspec.Struct = OffloadRefused(key, detail_of(error))
        else:
            self._collect_garbage(key, runtime)
            release_freed_memory(self._device)
            answer = Offloaded(key, host_bytes, runtime.retained_bytes(), time.perf_counter() - started_s)
        self._answer(answer)

    def restore(self, key: ModelKey) -> None:
        """Bring a model's weights back, and answer."""
        model = self._models[key]
        started_s = time.perf_counter()
        try:
            model.runtime.restore()
            wait_for_device(self._device)
        except BaseException as error:  # as above
            answer: msgspec.Struct = RestoreRefused(key, describe(error, model.folder), detail_of(error))
        else:
            answer = Restored(key, time.perf_counter() - started_s)
        self._answer(answer)

    def unload(self, key: ModelKey) -> None:
        """Drop a model that the server has closed the lanes of, and answer. One that failed to load isn't there."""
        model = self._models.pop(key, None)
        self._tidy.discard(key)
        runtime = None
        if model is not None:
            model.finish()
            runtime = model.runtime
            del model  # the lanes' threads could hold what they last computed
        gc.collect()
        release_freed_memory(self._device)
        self._answer(Unloaded(key, 0 if runtime is None else runtime.retained_bytes()))

    def finish_all(self) -> None:
        """Let every model clean up after itself: the process ends."""
        for model in list(self._models.values()):
            model.finish()

    def _collect_garbage(self, key: ModelKey, runtime: Runtime) -> None:
        """Where it is of use: what loading left behind, and what keeps a model's memory. To look at every object of
        the process stops all its models for a tenth of a second, with torch.
        """
        if key not in self._tidy or runtime.retained_bytes():
            gc.collect()
        self._tidy.add(key)

    def _answer(self, message: msgspec.Struct) -> None:
        self._send(message)
        self._caches.copies_ended()


def finish(runtime: Runtime, lanes: Sequence[LaneThread]) -> None:
    """End a model whose lanes the server has closed, or that never served: its threads, and then the model itself."""
    for lane in lanes:
        lane.finish()
    try:
        runtime.unload()
    except BaseException:  # a model may raise anything, SystemExit too
        traceback.print_exc()
