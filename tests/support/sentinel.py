"""A bystander: calls one model all through a trial and says whether it felt anything of it.

Its bound is 200 ms at the 99th percentile, with one call more than that allowed, because a trial of a few seconds
has fewer than a hundred calls and the machine has other things to do. It is a bound on what a neighbour feels, not a
measurement of speed: an undisturbed call takes a few milliseconds.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import grpc

from tests.support.calls import Calls, failure_of, output_of, request_of, rows_of

PERIOD_S = 0.05
LIMIT_S = 0.2


@dataclass
class Sentinel:
    """seconds: of each call so far. failures: what went wrong."""

    seconds: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def check(self, limit_s: float = LIMIT_S) -> None:
        """Raises AssertionError where a call failed or too many were slow."""
        assert not self.failures, self.failures[:5]
        assert self.seconds, "the sentinel made no call"
        slow = sorted(second for second in self.seconds if second > limit_s)
        assert len(slow) <= 1 + len(self.seconds) // 100, f"{len(slow)} of {len(self.seconds)} slow, {slow[-5:]} s"


def percentile(seconds: list[float], share: float) -> float:
    """The nearest-rank percentile."""
    ranked = sorted(seconds)
    return ranked[min(len(ranked) - 1, int(share * len(ranked)))]


@contextmanager
def sentinel(target: str, model: str = "echo", *, echoes: bool = True, limit_s: float = LIMIT_S) -> Iterator[Sentinel]:
    """Call the model at 20 Hz during the block, and check at its end. echoes: its output must be its input."""
    watch = Sentinel()
    stop = threading.Event()
    thread = threading.Thread(target=_watch, args=(watch, stop, target, model, echoes))
    thread.start()
    try:
        yield watch
    finally:
        stop.set()
        thread.join()
    watch.check(limit_s)


def _watch(watch: Sentinel, stop: threading.Event, target: str, model: str, echoes: bool) -> None:
    calls = Calls(target)
    number = 0
    while number == 0 or not stop.wait(PERIOD_S):
        number += 1
        began_s = time.monotonic()
        try:
            response = calls.infer(request_of(model, rows_of(number)), timeout_s=5.0)
        except grpc.RpcError as error:
            failed = failure_of(error)
            watch.failures.append(f"{failed.code}: {failed.message}")
            continue
        watch.seconds.append(time.monotonic() - began_s)
        if echoes and output_of(response).tolist() != [[number] * 4]:
            watch.failures.append(f"wrong answer to {number}: {output_of(response).tolist()}")
    calls.close()
