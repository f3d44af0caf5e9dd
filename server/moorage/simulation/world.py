"""Performs what the scheduler decides, in virtual time. Nothing here is random."""

from collections.abc import Callable
from typing import Any

from moorage.domain.model import ModelKey
from moorage.domain.request import InferenceRequest
from moorage.scheduling import actions, events
from moorage.scheduling.scheduler import Scheduler
from moorage.simulation.agenda import Agenda
from moorage.simulation.arrivals import Arrival, Traffic
from moorage.simulation.devices import number_devices
from moorage.simulation.errors import SimulationError
from moorage.simulation.fleet import Fleet
from moorage.simulation.processes import Processes
from moorage.simulation.tally import Tally

_TIME_REACHED = events.TimeReached()
_MOST_WAKES_AT_ONCE = 1000


class World:
    """Callers, clock and processes round one scheduler."""

    def __init__(self, scheduler: Scheduler, fleet: Fleet, traffic: Traffic) -> None:
        self.tally = Tally()
        self.devices = number_devices(fleet.devices.items())
        self._scheduler = scheduler
        self._fleet = fleet
        self._traffic = traffic
        self._agenda = Agenda()
        self._streams: dict[int, int] = {}
        self._expected = 0
        self._wakes_at_once = 0
        self._processes = Processes(fleet, self.devices, self._agenda, self.tally, self._send)
        self._perform: dict[type, Callable[[Any], None]] = {
            **self._processes.performs,
            actions.Succeed: self._succeed,
            actions.SucceedStepped: lambda action: self._answer(action.request),
            actions.Fail: self._fail,
            actions.Emit: _ignore,
            actions.HoldSettled: _ignore,
            actions.LoadSettled: _ignore,
            actions.UnloadSettled: _ignore,
            actions.ModelChanged: _ignore,
        }

    @property
    def now_s(self) -> float:
        return self._agenda.now_s

    def run(self) -> None:
        """Let everything happen until every request has its outcome.

        Raises SimulationError where that can't be, or the scheduler takes more memory than there is.
        """
        for key, spec in self._fleet.specs.items():
            self._send(events.ModelRegistered(key, spec))
        for arrival in self._traffic.first():
            self._expect(arrival)
        while self._expected or self.tally.waiting:
            self._go_on()

    def _go_on(self) -> None:
        agenda, wake_s = self._agenda, self._scheduler.next_wake_s
        next_s = agenda.next_s
        if next_s is not None and (wake_s is None or next_s <= wake_s):
            self._wakes_at_once = 0
            agenda.advance()
        elif wake_s is not None:
            self._wake(wake_s)
        else:
            raise SimulationError(f"{len(self.tally.waiting)} requests wait, and nothing is going to happen")

    def _wake(self, wake_s: float) -> None:
        self._wakes_at_once = self._wakes_at_once + 1 if wake_s <= self._agenda.now_s else 0
        if self._wakes_at_once > _MOST_WAKES_AT_ONCE:
            raise SimulationError(f"the scheduler asks to be woken at {wake_s:.6f} s again and again")
        self._agenda.pass_until(wake_s)
        self._send(_TIME_REACHED)

    def _send(self, event: events.Event) -> None:
        perform = self._perform
        for action in self._scheduler.handle(event, self._agenda.now_s):
            perform[type(action)](action)

    def _expect(self, arrival: Arrival | None) -> None:
        if arrival is not None:
            self._expected += 1
            self._agenda.at(arrival.time_s, self._arrive, arrival)

    def _arrive(self, arrival: Arrival) -> None:
        self._expected -= 1
        self._expect(self._traffic.after_arrival(arrival))
        key = self._fleet.keys[arrival.model]
        request = self._request(arrival, key)
        self._streams[request.request_id] = arrival.stream
        self.tally.arrived(request, arrival.model)
        self._send(events.RequestsArrived((request,)))

    def _request(self, arrival: Arrival, key: ModelKey) -> InferenceRequest:
        now_s = self._agenda.now_s
        return InferenceRequest(
            request_id=len(self.tally.asked),
            client_id="",
            model=key,
            inputs=(),
            rows=arrival.rows,
            size_bytes=0,
            arrived_s=now_s,
            deadline_s=now_s + arrival.timeout_s,
            batch_key="",
            priority=arrival.priority or self._fleet.specs[key].share.priority,
        )

    def _succeed(self, action: actions.Succeed) -> None:
        for entry in action.run.entries:
            if entry.request.request_id in self.tally.waiting:
                self._answer(entry.request)

    def _answer(self, request: InferenceRequest) -> None:
        self.tally.succeeded(request, self._agenda.now_s)
        self._leave(request)

    def _fail(self, action: actions.Fail) -> None:
        self.tally.failed(action.request, action.error)
        self._leave(action.request)

    def _leave(self, request: InferenceRequest) -> None:
        stream = self._streams.pop(request.request_id)
        self._expect(self._traffic.after_answer(stream, self._agenda.now_s))


def _ignore(action: object) -> None:
    """What tells views and callers of loads, of which there are none here."""
