"""The engine: takes an event, asks the scheduler, performs the actions. Only its owner does so."""

import asyncio
import logging
import time
import uuid
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from moorage.domain.errors import LoadFailed, ServerDraining
from moorage.domain.model import ModelKey
from moorage.domain.request import InferenceRequest
from moorage.domain.tensor import OutputTensor
from moorage.engine.gathering import GATHER_S, Gathering
from moorage.engine.ports import Workers
from moorage.engine.settlements import Settlements
from moorage.engine.tickets import Ticket, Tickets
from moorage.scheduling import actions, events
from moorage.scheduling.scheduler import Scheduler

log = logging.getLogger(__name__)

T = TypeVar("T")


class Engine:
    """Owns the scheduler. All methods are to be called on the event loop's thread."""

    def __init__(self, scheduler: Scheduler, *, check_integrity: bool = False) -> None:
        self.scheduler = scheduler
        self._tickets = Tickets(self.post, self.report)
        self.statistics = self._tickets.statistics
        self.settlements = Settlements()
        self._check_integrity = check_integrity
        self._workers: Workers | None = None
        self._events: deque[events.Event] = deque()
        self._loop = asyncio.get_running_loop()
        self._failure: asyncio.Future[None] = self._loop.create_future()
        self._scheduled = False
        self._gathering = Gathering(self.now)
        self._gather_timer: asyncio.TimerHandle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_s = float("inf")
        self._last_request_id = 0
        self._listeners: list[Callable[[], None]] = []
        self._observers: list[Callable[[events.Event, list[actions.Action]], None]] = []
        self._changed = False
        self._perform: dict[type, Callable[[Any], None]] = {
            actions.Execute: lambda action: self._need_workers().execute(action.run),
            actions.Succeed: self._succeed,
            actions.SucceedStepped: lambda action: self._tickets.succeed_stepped(
                action.request, action.run, action.result, self.now()
            ),
            actions.Emit: lambda action: self._tickets.emit(action.request, action.result, self.now()),
            actions.Suspend: lambda action: self._need_workers().suspend(action.worker, action.key, action.request_ids),
            actions.Drop: lambda action: self._need_workers().drop(action.worker, action.key, action.request_ids),
            actions.Fail: lambda action: self._tickets.fail(action.request, action.error, self.now()),
            actions.StartWorker: self._start_worker,
            actions.StopWorker: lambda action: self._need_workers().stop(action.worker),
            actions.KillWorker: lambda action: self._need_workers().kill(action.worker, action.reason),
            actions.Load: lambda action: self._need_workers().load(action.worker, action.key, action.spec),
            actions.Unload: lambda action: self._need_workers().unload(action.worker, action.key),
            actions.Offload: lambda action: self._need_workers().offload(action.worker, action.key),
            actions.Restore: lambda action: self._need_workers().restore(action.worker, action.key),
            actions.HoldSettled: lambda action: self.settlements.hold_settled(action.hold_id, action.error),
            actions.LoadSettled: lambda action: self.settlements.loaded(action.key, action.error),
            actions.UnloadSettled: lambda action: self.settlements.unloaded(action.key),
            actions.ModelChanged: self._model_changed,
        }

    def attach(self, workers: Workers) -> None:
        """Give the engine its workers, which in turn post to it."""
        self._workers = workers

    def _need_workers(self) -> Workers:
        assert self._workers is not None, "attach() comes first"
        return self._workers

    def now(self) -> float:
        """Monotonic seconds, the scheduler's time."""
        return time.monotonic()

    def next_request_id(self) -> int:
        self._last_request_id += 1
        return self._last_request_id

    def subscribe(self, on_change: Callable[[], None]) -> None:
        """Have a function called on the loop whenever a model's state or the server's readiness may have changed."""
        self._listeners.append(on_change)

    def observe(self, observer: Callable[[events.Event, list[actions.Action]], None]) -> None:
        """Have a function told of every event and what follows from it, before that is done. It must be quick."""
        self._observers.append(observer)

    def unsubscribe(self, on_change: Callable[[], None]) -> None:
        self._listeners.remove(on_change)

    def post(self, event: events.Event) -> None:
        """Hand an event to the owner."""
        self._events.append(event)
        self._schedule()

    def _schedule(self) -> None:
        """Have the owner work when the loop comes round: by a callback, as waking a task costs several times more."""
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._step)

    def report(self, model: str, detail: str) -> str:
        """Log what must not reach a caller; the id that links the caller's error to it."""
        error_id = uuid.uuid4().hex[:12]
        log.error("model %s, error id %s: %s", model, error_id, detail)
        return error_id

    async def run(self) -> None:
        """Stand behind the owner. Ends only by cancellation, or by a bug, which then ends the server."""
        try:
            await self._failure
        finally:
            self._fail_all_open()

    def catch_up(self) -> None:
        """Have the owner's turn now; never from within it. Raises ServerDraining where the owner is gone."""
        self._step()
        if self._failure.done():
            raise ServerDraining

    def _step(self) -> None:
        """The owner's turn."""
        self._scheduled = False
        if self._failure.done():
            return
        try:
            self._drain_events()
        except BaseException as error:
            self._failure.set_exception(error)
            if not isinstance(error, Exception):
                raise

    def _drain_events(self) -> None:
        pending = self._events
        if self._gathering:
            pending.appendleft(events.RequestsArrived(self._gathering.take()))
        while pending:
            self._handle(pending.popleft())
        self._arm_timer()
        if self._changed:
            self._changed = False
            for listener in tuple(self._listeners):
                listener()

    def _handle(self, event: events.Event) -> None:
        decided = self.scheduler.handle(event, self.now())
        for observer in self._observers:
            observer(event, decided)
        for action in decided:
            self._perform[type(action)](action)
        if self._check_integrity:
            self.scheduler.check_integrity()

    def _arm_timer(self) -> None:
        wake_s = self.scheduler.next_wake_s
        if wake_s is None or (self._timer is not None and self._timer_at_s <= wake_s):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at_s = wake_s
        self._timer = self._loop.call_later(max(0.0, wake_s - self.now()), self._ring)

    def _ring(self) -> None:
        self._timer = None
        self.post(events.TimeReached())

    async def infer(self, request: InferenceRequest, render: Callable[[tuple[OutputTensor, ...]], T]) -> T:
        """Queue a request and wait for its result.

        render: gets views into shared memory, valid only while it runs, and returns what the caller wants.
        Raises MoorageError. Cancellation: the request leaves its queue at once; if it runs, its result is dropped.
        """
        future = self.begin(request, render)
        try:
            return await future
        except asyncio.CancelledError:
            self.give_up(request.request_id)
            raise

    def begin(
        self,
        request: InferenceRequest,
        render: Callable[[tuple[OutputTensor, ...]], T],
        emit: Callable[[tuple[OutputTensor, ...]], None] | None = None,
    ) -> "asyncio.Future[T]":
        """Queue a request, and return where its result or MoorageError will be. See infer.

        emit: gets what a decoupled model answers before its last step, as render does. Who can't take more pauses the
        request. Who does not want the result any more has to give it up.
        """
        ticket: Ticket[T] = Ticket(request, render, self._loop.create_future(), emit)
        self._tickets.open(ticket)
        if self._gathering.add(request, len(self._tickets)):
            self._schedule()
        elif self._gather_timer is None:
            self._gather_timer = self._loop.call_later(GATHER_S, self._gathered)
        return ticket.future

    def give_up(self, request_id: int) -> None:
        """The caller has gone: the request leaves its queue. Without effect on one that is answered."""
        if self._tickets.take(request_id) is not None:
            self.post(events.RequestCancelled(request_id))

    def pause(self, request_id: int) -> None:
        """Have a stepped request take no step before it is resumed. Without effect on any other, or an answered one."""
        self.post(events.RequestPaused(request_id))

    def resume(self, request_id: int) -> None:
        """Undo pause."""
        self.post(events.RequestResumed(request_id))

    def _gathered(self) -> None:
        """Nobody waits longer for company."""
        self._gather_timer = None
        if self._gathering:
            self._schedule()

    def _succeed(self, action: actions.Succeed) -> None:
        run, result = action.run, action.result
        now = self.now()
        self._tickets.succeed(run, result, now)
        self._gathering.answered(run, result, now)
        self._need_workers().trim(run)

    def _start_worker(self, action: actions.StartWorker) -> None:
        try:
            self._need_workers().start(action.worker, action.device)
        except OSError as error:
            log.exception("worker %s could not be started", action.worker)
            self.post(events.WorkerLost(action.worker, f"could not be started: {error.strerror}"))

    def _model_changed(self, action: actions.ModelChanged) -> None:
        self._changed = True

    def changed(self) -> None:
        """Have the subscribers called."""
        self._changed = True
        self._schedule()

    async def load(self, key: ModelKey, *, may_evict: bool = True) -> None:
        """Load a registered model. Raises MoorageError. Cancellation: the load goes on.

        may_evict: see LoadRequested.
        """
        waiter = self.settlements.await_load(key)
        self.post(events.LoadRequested(key, may_evict))
        await waiter

    async def unload(self, key: ModelKey) -> None:
        """Unload a model and wait until its memory is free. Cancellation: the unload goes on."""
        waiter = self.settlements.await_unload(key)
        self.post(events.UnloadRequested(key))
        await waiter

    @property
    def is_idle(self) -> bool:
        """Whether no request is under way and no event waits."""
        return not self._tickets and not self._events

    async def drain(self, grace_s: float) -> bool:
        """Refuse new work and wait for what was accepted; whether all of it was answered within the grace."""
        self.post(events.DrainStarted())
        self.changed()
        try:
            await asyncio.wait_for(self._tickets.idle.wait(), grace_s)
        except TimeoutError:
            return False
        return True

    def _fail_all_open(self) -> None:
        """The owner is gone: nobody may wait for it."""
        for timer in (self._timer, self._gather_timer):
            if timer is not None:
                timer.cancel()
        self._tickets.fail_all(ServerDraining())
        self.settlements.abandon(LoadFailed("", "the server is shutting down"))
