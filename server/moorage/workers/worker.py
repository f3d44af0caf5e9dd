"""One worker process, spoken to: what the scheduler decided goes in, what came of it comes out as events."""

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

import msgspec

from moorage.domain.errors import LoadFailed
from moorage.domain.model import ModelKey, ModelSpec
from moorage.domain.tensor import TensorSpec
from moorage.scheduling.actions import Run
from moorage.scheduling.events import (
    Event,
    ModelLoaded,
    ModelLoadFailed,
    ModelOffloaded,
    ModelOffloadFailed,
    ModelRestored,
    ModelRestoreFailed,
    ModelUnloaded,
    WorkerLost,
    WorkerUp,
)
from moorage.workers.lanes import Lane
from moorage.workers.link import Link
from moorage.workers.messages import (
    Blueprint,
    FromWorker,
    GaveBack,
    GiveBack,
    Hello,
    Loaded,
    LoadModel,
    LoadRefused,
    Offloaded,
    OffloadModel,
    OffloadRefused,
    Restored,
    RestoreModel,
    RestoreRefused,
    SetCap,
    Spec,
    Stop,
    Unloaded,
    UnloadModel,
)
from moorage.workers.process import WorkerProcess

log = logging.getLogger(__name__)

# Models of this priority, or a higher one, go first where a CUDA device has work for several.
_URGENT_PRIORITY = 2

_DECODER: msgspec.msgpack.Decoder[FromWorker] = msgspec.msgpack.Decoder(FromWorker)


class Worker:
    """One process, its control link and the lanes of its models."""

    def __init__(
        self,
        name: str,
        device: str,
        environment: Mapping[str, str],
        post: Callable[[Event], None],
        report: Callable[[str, str], str],
        *,
        measures_all: bool = False,
    ) -> None:
        """measures_all: the memory of every run."""
        self.name = name
        self.device = device
        self.ended = asyncio.Event()
        # Whether nothing that it was told to give back is outstanding.
        self.gave_back = asyncio.Event()
        self.gave_back.set()
        self.told_to_end = False
        self._measures_all = measures_all
        self._post = post
        self._report = report
        self._process = WorkerProcess(device, environment, self._process_ended)
        self._control = Link(_DECODER, self._received, self._process.give_up)
        # One for each instance; of a stepped model, one.
        self._lanes: dict[ModelKey, list[Lane]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._caps = 0
        self._giving_back = 0
        self._spawn(self._connect())

    @property
    def pid(self) -> int:
        return self._process.pid

    def load(self, key: ModelKey, spec: ModelSpec, room: Callable[[], Awaitable[None]]) -> None:
        """Open the model's lanes and have it built, when there is room."""
        self._spawn(self._load(key, spec, room))

    def unload(self, key: ModelKey) -> None:
        """Close the model's lanes and have it dropped."""
        self._close_lanes(key)
        self._send(UnloadModel(key))

    def offload(self, key: ModelKey) -> None:
        """Have a model's weights moved to the host. Its lanes stay open."""
        self._send(OffloadModel(key))

    def restore(self, key: ModelKey) -> None:
        self._send(RestoreModel(key))

    def cap(self, size_bytes: int, *, keeps_cached: bool, keeps_pinned: bool) -> None:
        self._caps += 1
        self._send(SetCap(size_bytes, self._caps, keeps_cached, keeps_pinned))

    def give_back(self) -> None:
        self._giving_back += 1
        self.gave_back.clear()
        self._send(GiveBack())

    def execute(self, run: Run) -> None:
        self._lanes[run.key][run.instance].execute(run, self._caps)

    def suspend(self, key: ModelKey, request_ids: tuple[int, ...]) -> None:
        self._lanes[key][0].suspend(request_ids)

    def drop(self, key: ModelKey, request_ids: tuple[int, ...]) -> None:
        self._lanes[key][0].drop(request_ids)

    def trim(self, run: Run) -> None:
        lanes = self._lanes.get(run.key)
        if lanes is not None:
            lanes[run.instance].trim()

    def stop(self) -> None:
        """Ask the process to end in good order. Closed lanes let its threads go."""
        self.told_to_end = True
        for key in tuple(self._lanes):
            self._close_lanes(key)
        self._send(Stop())

    def kill(self, reason: str) -> None:
        self._process.kill(reason)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("worker %s: talking to it failed", self.name, exc_info=task.exception())
            self.kill("talking to it failed")

    async def _connect(self) -> None:
        await self._control.open(self._process.control)

    def _send(self, message: msgspec.Struct) -> None:
        self._control.send(message)

    async def _load(self, key: ModelKey, spec: ModelSpec, room: Callable[[], Awaitable[None]]) -> None:
        await room()
        if self.told_to_end:  # meanwhile
            return
        self._lanes[key] = lanes = []
        theirs: list[tuple[socket.socket, int]] = []
        try:
            for _ in range(spec.instances):
                lane = Lane(key, self._post, self._report, spec.inputs)
                theirs.append(await lane.open(self._process.give_up))
                lanes.append(lane)
            # One byte and two descriptors for each lane, one load at a time: this never fills the socket.
            handles = [handle for lane, descriptor in theirs for handle in (lane.fileno(), descriptor)]
            socket.send_fds(self._process.handles, [b"L"], handles)
        finally:
            for lane_end, descriptor in theirs:
                lane_end.close()
                os.close(descriptor)
        self._send(LoadModel(key, _blueprint(spec, measures_all=self._measures_all)))

    def _received(self, message: FromWorker) -> None:
        match message:
            case Hello():
                self._process.came_up()
                self._post(WorkerUp(self.name))
            case Loaded(key, weights_bytes, load_s, stepped, can_offload, warmup_s, rehearsed):
                log.info("model %s loaded in %.2f s, warm-up %.2f s, %d bytes", key, load_s, warmup_s, weights_bytes)
                self._post(ModelLoaded(key, weights_bytes, load_s, stepped, can_offload, rehearsed))
            case LoadRefused(key, reason, detail):
                self._load_refused(key, reason, detail)
            case Unloaded(key, retained_bytes):
                _warn_of_retained(key, retained_bytes)
                self._post(ModelUnloaded(key, retained_bytes))
            case GaveBack(freed_bytes):
                log.info("worker %s gave %d cached bytes back", self.name, freed_bytes)
                self._giving_back -= 1
                if not self._giving_back:
                    self.gave_back.set()
            case _:
                self._moved(message)

    def _moved(self, message: Offloaded | OffloadRefused | Restored | RestoreRefused) -> None:
        match message:
            case Offloaded(key, host_bytes, retained_bytes, offload_s):
                log.info("model %s offloaded in %.2f s, %d bytes on the host", key, offload_s, host_bytes)
                self._post(ModelOffloaded(key, retained_bytes))
            case OffloadRefused(key, detail):
                self._report(key.name, detail)
                self._post(ModelOffloadFailed(key))
            case Restored(key, restore_s):
                log.info("model %s restored in %.2f s", key, restore_s)
                self._post(ModelRestored(key, restore_s))
            case RestoreRefused(key, reason, detail):
                self._report(key.name, detail)
                self._post(ModelRestoreFailed(key, LoadFailed(key.name, f"its weights did not come back: {reason}")))

    def _load_refused(self, key: ModelKey, reason: str, detail: str) -> None:
        self._report(key.name, detail)
        self._close_lanes(key)
        self._post(ModelLoadFailed(key, LoadFailed(key.name, reason)))

    def _close_lanes(self, key: ModelKey) -> None:
        for lane in self._lanes.pop(key, ()):
            lane.close()

    def _process_ended(self, reason: str) -> None:
        for task in self._tasks:
            task.cancel()
        for key in tuple(self._lanes):
            self._close_lanes(key)
        self._control.close()
        self._process.control.close()
        self._process.handles.close()
        self.ended.set()
        self.gave_back.set()
        self._post(WorkerLost(self.name, reason))


def _warn_of_retained(key: ModelKey, retained_bytes: int) -> None:
    if retained_bytes:
        log.warning("model %s was unloaded, and something still holds %d bytes of it", key, retained_bytes)


def _blueprint(spec: ModelSpec, *, measures_all: bool) -> Blueprint:
    return Blueprint(
        runtime=spec.runtime,
        path=str(spec.path),
        inputs=tuple(map(_spec, spec.inputs)),
        outputs=tuple(map(_spec, spec.outputs)),
        max_batch_size=spec.max_batch_size,
        parameters=dict(spec.parameters),
        load_s=spec.simulated.load_s,
        run_s=spec.simulated.run_s,
        run_s_per_row=spec.simulated.run_s_per_row,
        declared_weights_bytes=spec.memory.weights_bytes or 0,
        restore_s=spec.simulated.restore_s,
        steps=spec.simulated.steps,
        state_bytes=spec.simulated.state_bytes,
        warmup=spec.warmup,
        measures_all=measures_all,
        instances=spec.instances,
        urgent=spec.share.priority <= _URGENT_PRIORITY,
        decoupled=spec.decoupled,
    )


def _spec(spec: TensorSpec) -> Spec:
    return Spec(spec.name, spec.datatype.value, spec.shape, spec.optional, spec.ragged, spec.padding)
