"""What happened in a simulation, counted as it happens."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from moorage.domain.errors import MoorageError
from moorage.domain.request import InferenceRequest
from moorage.scheduling.actions import Run
from moorage.simulation.errors import SimulationError


@dataclass(slots=True)
class Moved:
    """How often, and how many bytes in all."""

    count: int = 0
    size_bytes: int = 0

    def add(self, size_bytes: int) -> None:
        self.count += 1
        self.size_bytes += size_bytes


@dataclass(slots=True)
class Tally:
    """Request ids count from 0 in the order of arrival, so that lists by request are in that order.

    asked: the model of each request. placed: the device that first ran it, -1 for none.
    loads: from disk; reloads are those of a model that had been loaded before. suspensions, drops: of the states of
    requests that still wait.
    """

    asked: list[int] = field(default_factory=list)
    placed: list[int] = field(default_factory=list)
    waiting: dict[int, InferenceRequest] = field(default_factory=dict)
    answered: Counter[int] = field(default_factory=Counter)
    in_time: Counter[int] = field(default_factory=Counter)
    latencies_s: dict[int, list[float]] = field(default_factory=dict)
    failures: Counter[str] = field(default_factory=Counter)
    runs: int = 0
    run_rows: int = 0
    loads: Moved = field(default_factory=Moved)
    reloads: Moved = field(default_factory=Moved)
    restores: Moved = field(default_factory=Moved)
    offloads: Moved = field(default_factory=Moved)
    unloads: Moved = field(default_factory=Moved)
    suspensions: int = 0
    drops: int = 0
    kills: int = 0

    def arrived(self, request: InferenceRequest, model: int) -> None:
        assert request.request_id == len(self.asked)
        self.asked.append(model)
        self.placed.append(-1)
        self.waiting[request.request_id] = request

    def started(self, run: Run, device: int) -> None:
        self.runs += 1
        self.run_rows += run.rows
        for entry in run.entries:
            if self.placed[entry.request.request_id] < 0:
                self.placed[entry.request.request_id] = device

    def succeeded(self, request: InferenceRequest, now_s: float) -> None:
        """Raises SimulationError for a second outcome, as `failed` does."""
        self._close(request)
        self.answered[request.priority] += 1
        self.in_time[request.priority] += now_s <= request.deadline_s
        self.latencies_s.setdefault(request.priority, []).append(now_s - request.arrived_s)

    def failed(self, request: InferenceRequest, error: MoorageError) -> None:
        self._close(request)
        self.failures[type(error).__name__] += 1

    def _close(self, request: InferenceRequest) -> None:
        if self.waiting.pop(request.request_id, None) is None:
            raise SimulationError(f"request {request.request_id} has a second outcome")

    def placed_on(self, device: int) -> Sequence[int]:
        """The models that requests asked for which ran there, in the order of arrival."""
        return [model for model, place in zip(self.asked, self.placed, strict=True) if place == device]
