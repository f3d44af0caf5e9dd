"""What is tried of preemption, how much of it, and what came of it."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from examples.speech import SAMPLE_RATE_HZ
from numpy.typing import NDArray

from moorage_client import Snapshot
from tests.support.memory_models import MIB
from tests.support.memory_watch import LedgerWatch

VAD, URGENT = "vad", "urgent"
VAD_WEIGHTS_BYTES = 4 * MIB
STEP_BYTES = 24 * MIB  # what a step of vad takes, and half a MiB more for each recording in it
ROW_BYTES = MIB // 2
URGENT_WEIGHTS_BYTES = 1 * MIB
WINDOW_SAMPLES, WINDOWS_PER_STEP = 512, 16
_ON_THE_WAY_S = 0.001  # a step that the server had sent off already when the request came


@dataclass(frozen=True)
class Trial:
    """How much of everything.

    recording_s: how long each is. state_bytes: what vad says that one keeps. together: how many states the budget
    holds. requests, clients: of recordings. arrivals: of urgent requests, on the average gap_s after each other.
    least_arrivals: so many come at least before the recordings are done. ageing_s: of the server.
    """

    recording_s: float
    state_bytes: int
    together: int
    requests: int
    clients: int
    arrivals: int
    gap_s: float
    least_arrivals: int
    ageing_s: float = 10.0

    @property
    def steps(self) -> int:
        """Of one recording."""
        return -(-int(self.recording_s * SAMPLE_RATE_HZ) // (WINDOW_SAMPLES * WINDOWS_PER_STEP))

    @property
    def budget_bytes(self) -> int:
        """Just enough for so many states and a step of them all, beside the weights of both models."""
        step_bytes = STEP_BYTES + self.together * ROW_BYTES
        return VAD_WEIGHTS_BYTES + URGENT_WEIGHTS_BYTES + step_bytes + self.together * self.state_bytes

    @property
    def urgent_bytes(self) -> int:
        """More than a step that ends gives back, so that a state has to go."""
        return STEP_BYTES + self.together * ROW_BYTES + self.state_bytes // 2


SHORT = Trial(
    recording_s=60.0,
    state_bytes=4 * MIB,
    together=4,
    requests=32,
    clients=8,
    arrivals=30,
    gap_s=0.1,
    least_arrivals=15,
)
LONG = Trial(
    recording_s=600.0,
    state_bytes=40 * MIB,
    together=4,
    requests=32,
    clients=10,
    arrivals=200,
    gap_s=0.3,
    least_arrivals=200,
)
# Everybody has waited long enough to have risen as high as one can.
AGED = replace(SHORT, requests=16, arrivals=20, least_arrivals=10, ageing_s=0.1)


@dataclass(frozen=True)
class Arrival:
    """An urgent request: sent, begun and ended in the worker, answered; on the clock of time.monotonic.

    queued_s: how long it was with the server before it was sent to the worker, as the server says.
    """

    sent_s: float
    began_s: float
    ended_s: float
    came_s: float
    queued_s: float

    @property
    def delay_s(self) -> float:
        """Until its run began."""
        return self.began_s - self.sent_s

    @property
    def run_s(self) -> float:
        return self.ended_s - self.began_s

    @property
    def took_s(self) -> float:
        """Until it was answered."""
        return self.came_s - self.sent_s


@dataclass
class Phase:
    """A time in which recordings were worked on. outputs: by the number of the recording."""

    seconds: float = 0.0
    outputs: list[tuple[int, NDArray[np.float32]]] = field(default_factory=list)

    def __add__(self, other: "Phase") -> "Phase":
        return Phase(self.seconds + other.seconds, self.outputs + other.outputs)


@dataclass(frozen=True)
class Outcome:
    """What a trial showed.

    alone: urgent requests on an idle server. undisturbed, disturbed: recordings by themselves, and with urgent requests
    (arrivals) between them. steps: when each step of recordings began and ended, FP64[steps, 2]. looks: at the server
    before the undisturbed recordings, and at the end.
    """

    trial: Trial
    alone: list[Arrival]
    undisturbed: Phase
    disturbed: Phase
    arrivals: list[Arrival]
    steps: NDArray[np.float64]
    ledger: LedgerWatch
    looks: tuple[Snapshot, Snapshot]

    @property
    def step_s(self) -> float:
        """The median step, as it is computed."""
        return float(np.median(np.diff(self.steps)))

    def steps_first(self) -> list[int]:
        """Of each urgent request, how many steps began after it had come to the server, and before it."""
        began_s = self.steps[:, 0]
        came = [(one.began_s - one.queued_s + _ON_THE_WAY_S, one.began_s) for one in self.arrivals]
        return [int(np.sum((began_s > came_s) & (began_s < own_s))) for came_s, own_s in came]

    def handovers_s(self) -> list[float]:
        """Of each urgent request that came during a step, how long after the last step's end its run began."""
        ended_s = self.steps[:, 1]
        lasts_s = [(one, ended_s[ended_s < one.began_s].max()) for one in self.arrivals]
        return [one.began_s - last_s for one, last_s in lasts_s if last_s > one.sent_s]

    @property
    def differing(self) -> int:
        """Answers of disturbed requests that are not, bit for bit, what undisturbed ones got."""
        expected: dict[int, NDArray[np.float32]] = {}
        for number, probability in self.undisturbed.outputs:
            assert np.array_equal(expected.setdefault(number, probability), probability), "it depends on company"
        return sum(not np.array_equal(expected[number], got) for number, got in self.disturbed.outputs)

    @property
    def preemptions(self) -> int:
        """Of recordings."""
        models = (next(model for model in look.models if model.name == VAD) for look in self.looks)
        before, after = (model.residency_counts.preemptions for model in models)
        return after - before

    @property
    def lost_share(self) -> float:
        """By how much fewer recordings a second were done, of 1."""
        return 1 - self.undisturbed.seconds / self.disturbed.seconds

    @property
    def urgent_share(self) -> float:
        """The share of the time that runs of urgent requests took."""
        return sum(arrival.run_s for arrival in self.arrivals) / self.disturbed.seconds

    def problems(self, most_lost_share: float) -> list[str]:
        """What is not as it should be. most_lost_share: of the throughput, beside the time of the urgent runs."""
        first, over = self.steps_first(), len(self.ledger.over_capacity("cpu"))
        trial, lost_share = self.trial, self.lost_share - self.urgent_share
        found = {
            f"only {len(first)} urgent requests came": len(first) < trial.least_arrivals,
            f"{max(first, default=0)} steps began before an urgent request": max(first, default=0) > 1,
            f"only {self.preemptions} preemptions": self.preemptions < trial.arrivals // 2,
            f"{len(self.disturbed.outputs)} recordings answered": len(self.disturbed.outputs) != trial.requests,
            f"{self.differing} answers differ": self.differing > 0,
            f"over budget in {over} looks": over > 0,
            f"{lost_share:.1%} lost beside the urgent runs": lost_share > most_lost_share,
        }
        return [what for what, is_so in found.items() if is_so]

    def report(self) -> str:
        """The figures, for people."""
        arrivals, trial = self.arrivals, self.trial
        p50_s, p99_s = _percentiles([arrival.delay_s for arrival in arrivals])
        given50_s, given99_s = _percentiles(self.handovers_s())
        queued50_s, queued99_s = _percentiles([arrival.queued_s for arrival in arrivals])
        step50_s, step99_s = _percentiles(np.diff(self.steps)[:, 0].tolist())
        took50_s, took99_s = _percentiles([arrival.took_s for arrival in arrivals])
        alone50_s, alone99_s = _percentiles([arrival.took_s for arrival in self.alone])
        first50_s, first99_s = _percentiles([arrival.delay_s for arrival in self.alone])
        return "\n".join(
            [
                f"{trial.requests} recordings of {trial.recording_s:g} s, {trial.together} at once, {trial.steps} steps"
                f" each; a step takes {step50_s * 1000:.1f} ms, p99 {step99_s * 1000:.1f} ms",
                f"{len(arrivals)} urgent requests, {self.preemptions} preemptions, {self.differing} answers differ",
                f"until it starts: p50 {p50_s * 1000:.1f} ms, p99 {p99_s * 1000:.1f} ms"
                f" ({p50_s / self.step_s:.1f} and {p99_s / self.step_s:.1f} steps,"
                f" {p50_s / alone50_s:.2f} and {p99_s / alone50_s:.2f} times the median answer alone);"
                f" alone p50 {first50_s * 1000:.1f} ms, p99 {first99_s * 1000:.1f} ms",
                f"of that in the server: p50 {queued50_s * 1000:.1f} ms, p99 {queued99_s * 1000:.1f} ms",
                f"steps begun between: at most {max(self.steps_first())}, on average {np.mean(self.steps_first()):.2f};"
                f" from the step's end to its start p50 {given50_s * 1000:.1f} ms, p99 {given99_s * 1000:.1f} ms",
                f"until answered: p50 {took50_s * 1000:.1f} ms, p99 {took99_s * 1000:.1f} ms;"
                f" alone p50 {alone50_s * 1000:.1f} ms, p99 {alone99_s * 1000:.1f} ms"
                f" (p99 is {took99_s / alone50_s:.2f} times the median alone)",
                f"recordings: {self.undisturbed.seconds:.1f} s undisturbed, {self.disturbed.seconds:.1f} s disturbed:"
                f" {self.lost_share:.1%} less throughput, {self.urgent_share:.1%} of the time was urgent runs'",
                f"ledger over budget: {len(self.ledger.over_capacity('cpu'))} of {len(self.ledger.snapshots)} looks",
            ]
        )


def _percentiles(values: Sequence[float]) -> tuple[float, float]:
    p50, p99 = np.percentile(values, [50, 99])
    return float(p50), float(p99)
