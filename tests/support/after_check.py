"""What must hold after every trial: the server is the same, serves, holds what it should, and has leaked nothing."""

from collections.abc import Mapping
from dataclasses import dataclass

import psutil

from tests.support.calls import Calls, output_of, request_of, rows_of
from tests.support.polling import eventually
from tests.support.running_server import RunningServer

_MORE_DESCRIPTORS = 12  # gRPC's poller and a connection that is just closing come and go
_MORE_THREADS = 8  # gRPC grows its pools when it needs to
_MORE_RSS_BYTES = 48 * 1024 * 1024  # and its arenas


@dataclass(frozen=True)
class Baseline:
    """The server before a trial. models: the bytes that each holds."""

    pid: int
    descriptors: int
    threads: int
    rss_bytes: int
    models: Mapping[str, int]

    @classmethod
    def of(cls, server: RunningServer, calls: Calls) -> "Baseline":
        """Take it when nothing is under way."""
        process = psutil.Process(server.pid)
        rss_bytes = process.memory_info().rss
        return cls(server.pid, process.num_fds(), process.num_threads(), rss_bytes, calls.memory_bytes())


def after_check(server: RunningServer, calls: Calls, before: Baseline, *, echo: str = "echo") -> None:
    """Raises AssertionError where anything is not as before."""
    assert server.process.poll() is None, server.logs[-2000:]
    assert calls.is_live()
    eventually(calls.is_ready, what="the server is ready")
    eventually(lambda: calls.is_model_ready(echo), what=f"{echo} is ready")
    assert output_of(calls.infer(request_of(echo, rows_of(7)))).tolist() == [[7.0] * 4]
    eventually(lambda: not _waiting(calls), what="nothing waits")
    eventually(lambda: calls.memory_bytes() == before.models, what="the models hold what they held")
    now = psutil.Process(before.pid)
    eventually(lambda: now.num_fds() <= before.descriptors + _MORE_DESCRIPTORS, what="descriptors are back")
    eventually(lambda: now.num_threads() <= before.threads + _MORE_THREADS, what="threads are back")
    eventually(lambda: now.memory_info().rss <= before.rss_bytes + _MORE_RSS_BYTES, what="memory is back")
    assert not any(word in server.logs for word in ("fork", "never retrieved", "was destroyed but it is pending"))


def _waiting(calls: Calls) -> list[str]:
    return [entry.reason for entry in calls.index().values() if "rows waiting" in entry.reason]
