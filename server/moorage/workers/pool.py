"""All worker processes of the server: does what the scheduler decided, and reports what came of it."""

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import msgspec

from moorage.domain.errors import LoadFailed
from moorage.domain.model import ModelKey, ModelSpec
from moorage.domain.tensor import TensorSpec
from moorage.scheduling.actions import Run
from moorage.scheduling.events import Event, ModelLoaded, ModelLoadFailed, ModelUnloaded, WorkerLost, WorkerUp
from moorage.workers.lanes import Lane
from moorage.workers.link import Link
from moorage.workers.messages import (
    Blueprint,
    FromWorker,
    Hello,
    Loaded,
    LoadModel,
    LoadRefused,
    Spec,
    Stop,
    Unloaded,
    UnloadModel,
)
from moorage.workers.process import WorkerProcess

log = logging.getLogger(__name__)

_DECODER: msgspec.msgpack.Decoder[FromWorker] = msgspec.msgpack.Decoder(FromWorker)
_KILLED_WITHIN_S = 5.0


class Worker:
    """One process, its control link and the lanes of its models."""

    def __init__(
        self,
        name: str,
        device: str,
        environment: Mapping[str, str],
        post: Callable[[Event], None],
        report: Callable[[str, str], str],
    ) -> None:
        self.name = name
        self.ended = asyncio.Event()
        self.told_to_end = False
        self._post = post
        self._report = report
        self._process = WorkerProcess(device, environment, self._process_ended)
        self._control = Link(_DECODER, self._received, self._process.give_up)
        self._lanes: dict[ModelKey, Lane] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._spawn(self._connect())

    @property
    def pid(self) -> int:
        return self._process.pid

    def load(self, key: ModelKey, spec: ModelSpec) -> None:
        """Open a lane for the model and have it built."""
        self._spawn(self._load(key, spec))

    def unload(self, key: ModelKey) -> None:
        """Close the model's lane and have it dropped."""
        lane = self._lanes.pop(key, None)
        if lane is not None:
            lane.close()
        self._send(UnloadModel(key))

    def execute(self, run: Run) -> None:
        self._lanes[run.key].execute(run)

    def trim(self, key: ModelKey) -> None:
        lane = self._lanes.get(key)
        if lane is not None:
            lane.trim()

    def stop(self) -> None:
        """Ask the process to end in good order. Closed lanes let its threads go."""
        self.told_to_end = True
        for lane in self._lanes.values():
            lane.close()
        self._lanes.clear()
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

    async def _load(self, key: ModelKey, spec: ModelSpec) -> None:
        lane = Lane(key, self._post, self._report)
        theirs, descriptor = await lane.open(self._process.give_up)
        try:
            self._lanes[key] = lane
            # One byte and two descriptors, one load at a time: this never fills the socket.
            socket.send_fds(self._process.handles, [b"L"], [theirs.fileno(), descriptor])
        finally:
            theirs.close()
            os.close(descriptor)
        self._send(LoadModel(key, _blueprint(spec)))

    def _received(self, message: FromWorker) -> None:
        match message:
            case Hello():
                self._process.came_up()
                self._post(WorkerUp(self.name))
            case Loaded(key, weights_bytes, load_s):
                log.info("model %s loaded in %.2f s, %d bytes", key, load_s, weights_bytes)
                self._post(ModelLoaded(key, weights_bytes))
            case LoadRefused(key, reason, detail):
                self._load_refused(key, reason, detail)
            case Unloaded(key):
                self._post(ModelUnloaded(key))

    def _load_refused(self, key: ModelKey, reason: str, detail: str) -> None:
        self._report(key.name, detail)
        lane = self._lanes.pop(key, None)
        if lane is not None:
            lane.close()
        self._post(ModelLoadFailed(key, LoadFailed(key.name, reason)))

    def _process_ended(self, reason: str) -> None:
        for task in self._tasks:
            task.cancel()
        for lane in self._lanes.values():
            lane.close()
        self._control.close()
        self._process.control.close()
        self._process.handles.close()
        self.ended.set()
        self._post(WorkerLost(self.name, reason))


class WorkerPool:
    """Every worker by name. Its methods start things and return; what comes of them is posted as events.

    post: takes an event for the scheduler. report: logs (model, detail) and returns the id it is logged under.
    environment: variables for every process.
    """

    def __init__(
        self,
        post: Callable[[Event], None],
        report: Callable[[str, str], str],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._environment = environment or {}
        self._post = post
        self._report = report
        self._workers: dict[str, Worker] = {}

    @property
    def pids(self) -> dict[str, int]:
        """Process ids of the workers that live."""
        return {name: worker.pid for name, worker in self._workers.items() if not worker.ended.is_set()}

    def start(self, name: str, device: str) -> None:
        """Start a process. Raises OSError where the system has no room for one."""
        self._workers[name] = Worker(name, device, self._environment, self._ended_or_other, self._report)

    # A worker that is not there has ended, and the event that says so is on its way to the scheduler, which does
    # not know yet. That event settles whatever the worker is asked to do meanwhile.

    def stop(self, name: str) -> None:
        if worker := self._workers.get(name):
            worker.stop()

    def kill(self, name: str, reason: str) -> None:
        if worker := self._workers.get(name):
            worker.kill(reason)

    def load(self, name: str, key: ModelKey, spec: ModelSpec) -> None:
        if worker := self._workers.get(name):
            worker.load(key, spec)

    def unload(self, name: str, key: ModelKey) -> None:
        if worker := self._workers.get(name):
            worker.unload(key)

    def execute(self, run: Run) -> None:
        if worker := self._workers.get(run.worker):
            worker.execute(run)

    def trim(self, run: Run) -> None:
        """The run's outputs have been read."""
        if worker := self._workers.get(run.worker):
            worker.trim(run.key)

    def _ended_or_other(self, event: Event) -> None:
        if isinstance(event, WorkerLost):
            worker = self._workers.pop(event.worker)
            log.log(
                logging.INFO if worker.told_to_end else logging.WARNING,
                "worker %s ended: %s",
                event.worker,
                event.reason,
            )
        self._post(event)

    async def close(self, grace_s: float) -> None:
        """End every worker: in good order within the grace, by force after it.

        grace_s: 0 is force at once.

        Cancellation: workers that have not ended by then are left to their parent's end, which ends them.
        """
        workers = list(self._workers.values())
        for worker in workers:
            worker.stop()
        await _all_ended(workers, grace_s)
        for worker in workers:
            worker.kill("did not end in time")
        await _all_ended(workers, _KILLED_WITHIN_S)


async def _all_ended(workers: list[Worker], limit_s: float) -> None:
    waits = [asyncio.ensure_future(worker.ended.wait()) for worker in workers]
    if waits:
        _, late = await asyncio.wait(waits, timeout=limit_s)
        for wait in late:
            wait.cancel()


def _blueprint(spec: ModelSpec) -> Blueprint:
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
    )


def _spec(spec: TensorSpec) -> Spec:
    return Spec(spec.name, spec.datatype.value, spec.shape, spec.optional)
