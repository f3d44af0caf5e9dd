"""When requests for a quick model are handed to the scheduler: together, as far as callers come back together.

A run is one message to a worker and one back. For a model whose run costs less than that, a run for every request is
mostly messages. Callers in closed loops come back soon after they were answered, so as many arrivals are awaited as
answers went out just before, but no more than were under way at once lately, and for a moment at most. So a lone
caller's request is never held; nor is any request for a model whose runs are long, since a batch of those fills while
one runs.
"""

from collections import deque
from collections.abc import Callable

from moorage.domain.model import ModelKey
from moorage.domain.request import InferenceRequest, RunResult
from moorage.scheduling.actions import Run

# The longest that a request is held, and how long ago an answer counts.
GATHER_S = 1e-3
# A run that takes longer costs more than the messages do.
QUICK_RUN_NS = 300_000
# "Lately": this long, or up to twice as long.
PEAK_S = 10e-3


class Gathering:
    """Holds arrivals for quick models back until they are due. `now` is the engine's clock."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._quick: set[ModelKey] = set()
        self._answers: deque[tuple[float, int]] = deque()
        self._arrivals: list[InferenceRequest] = []
        self._peak = self._peak_before = 0
        self._peak_until_s = 0.0

    def __len__(self) -> int:
        return len(self._arrivals)

    def add(self, request: InferenceRequest, under_way: int) -> bool:
        """Take an arrival; whether all that have come are due now. If not, they are due in GATHER_S at the latest.

        under_way: requests that have no answer yet, this one included.
        """
        self._arrivals.append(request)
        if request.model not in self._quick:
            return True
        now = self._now()
        self._note_peak(under_way, now)
        most = max(self._peak, self._peak_before)
        return len(self._arrivals) >= most or len(self._arrivals) >= self._answered_since(now - 2 * GATHER_S)

    def _note_peak(self, under_way: int, now: float) -> None:
        if now > self._peak_until_s:
            self._peak_before = self._peak if now - self._peak_until_s < PEAK_S else 0
            self._peak = 0
            self._peak_until_s = now + PEAK_S
        self._peak = max(self._peak, under_way)

    def take(self) -> tuple[InferenceRequest, ...]:
        """All that have come."""
        arrivals = tuple(self._arrivals)
        self._arrivals.clear()
        return arrivals

    def _answered_since(self, since_s: float) -> int:
        while self._answers and self._answers[0][0] < since_s:
            self._answers.popleft()
        return sum(count for _, count in self._answers)

    def answered(self, run: Run, result: RunResult, now: float) -> None:
        """Learn from a run: whether its model is quick, and who is likely to come back."""
        if result.input_ns + result.infer_ns + result.output_ns > QUICK_RUN_NS:
            self._quick.discard(run.key)
            return
        self._quick.add(run.key)
        self._answers.append((now, len(run.entries)))
        if len(self._answers) > 256:
            self._answers.popleft()
