"""All worker processes of the server: does what the scheduler decided, and reports what came of it."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial

from moorage.domain.model import ModelKey, ModelSpec
from moorage.scheduling.actions import Run
from moorage.scheduling.events import Event, WorkerLost
from moorage.workers.worker import Worker

log = logging.getLogger(__name__)

_KILLED_WITHIN_S = 5.0
# Blocks come free when what the device computes is done, so it can take as long as a run.
_GIVEN_BACK_WITHIN_S = 5.0


class WorkerPool:
    """Every worker by name. Its methods start things and return; what comes of them is posted as events.

    post: takes an event for the scheduler. report: logs (model, detail) and returns the id it is logged under.
    environment: variables for every process. measures_all: the memory of every run, which costs time.
    """

    def __init__(
        self,
        post: Callable[[Event], None],
        report: Callable[[str, str], str],
        environment: Mapping[str, str] | None = None,
        *,
        measures_all: bool = False,
    ) -> None:
        self._environment = environment or {}
        self._measures_all = measures_all
        self._post = post
        self._report = report
        self._workers: dict[str, Worker] = {}

    @property
    def pids(self) -> dict[str, int]:
        """Process ids of the workers that live."""
        return {name: worker.pid for name, worker in self._workers.items() if not worker.ended.is_set()}

    def start(self, name: str, device: str) -> None:
        """Start a process. Raises OSError where the system has no room for one."""
        self._workers[name] = Worker(
            name, device, self._environment, self._ended_or_other, self._report, measures_all=self._measures_all
        )

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
            worker.load(key, spec, partial(self._others_gave_back, worker))

    def unload(self, name: str, key: ModelKey) -> None:
        if worker := self._workers.get(name):
            worker.unload(key)

    def offload(self, name: str, key: ModelKey) -> None:
        """Move a model's weights to the host. None of its runs may be under way, nor start before ModelRestored.

        Posts ModelOffloaded or ModelOffloadFailed.
        """
        if worker := self._workers.get(name):
            worker.offload(key)

    def restore(self, name: str, key: ModelKey) -> None:
        """Bring an offloaded model's weights back. Posts ModelRestored or ModelRestoreFailed."""
        if worker := self._workers.get(name):
            worker.restore(key)

    def cap(self, name: str, size_bytes: int, *, keeps_cached: bool = True, keeps_pinned: bool = True) -> None:
        """Bound what a worker takes of its CUDA device; a model that would take more is out of memory.

        keeps_cached, keeps_pinned: see SetCap. What it has cached by now it gives back by give_back.
        """
        if worker := self._workers.get(name):
            worker.cap(size_bytes, keeps_cached=keeps_cached, keeps_pinned=keeps_pinned)

    def give_back(self, name: str) -> None:
        """Have a worker give its device back what it has cached and does not use. Others' loads there wait for it."""
        if worker := self._workers.get(name):
            worker.give_back()

    def execute(self, run: Run) -> None:
        if worker := self._workers.get(run.worker):
            worker.execute(run)

    def suspend(self, name: str, key: ModelKey, request_ids: tuple[int, ...]) -> None:
        """Move the states of requests of a stepped model to the host. Posts StatesSuspended; for those that could not
        be moved, and are lost, StatesDropped."""
        if worker := self._workers.get(name):
            worker.suspend(key, request_ids)

    def drop(self, name: str, key: ModelKey, request_ids: tuple[int, ...]) -> None:
        """Give up the states of requests of a stepped model, if there are any. Posts StatesDropped."""
        if worker := self._workers.get(name):
            worker.drop(key, request_ids)

    def trim(self, run: Run) -> None:
        """The run's outputs have been read."""
        if worker := self._workers.get(run.worker):
            worker.trim(run)

    async def _others_gave_back(self, newcomer: Worker) -> None:
        """Wait until others on the device have given back what they were told to, as their runs' leases have ended.

        A process that does not answer in time would hold up all others: the load then goes on without it.
        """
        others = [worker for worker in self._workers.values() if worker.device == newcomer.device]
        owing = [worker.gave_back for worker in others if worker is not newcomer and not worker.gave_back.is_set()]
        if not await _all_set(owing, _GIVEN_BACK_WITHIN_S):
            log.warning("worker %s begins a load though others still hold cached memory", newcomer.name)

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
        ends = [worker.ended for worker in workers]
        await _all_set(ends, grace_s)
        for worker in workers:
            worker.kill("did not end in time")
        await _all_set(ends, _KILLED_WITHIN_S)


async def _all_set(events: list[asyncio.Event], limit_s: float) -> bool:
    """Whether all of these came about within the limit. Cancellation: nobody waits for them any longer."""
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    if not waits:
        return True
    try:
        _, late = await asyncio.wait(waits, timeout=limit_s)
        return not late
    finally:
        for wait in waits:
            wait.cancel()
