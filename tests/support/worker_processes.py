"""Which process a dedicated model runs in, and ending it."""

import os
import signal
import time
from collections.abc import Collection

import psutil

from tests.support.calls import Calls
from tests.support.polling import eventually
from tests.support.running_server import RunningServer


def pids(server: RunningServer) -> set[int]:
    """Of all its workers."""
    return {worker.pid for worker in server.workers()}


def load_alone(server: RunningServer, calls: Calls, model: str) -> int:
    """Load a dedicated model whose worker is the only one to start meanwhile; its process id."""
    before = pids(server)
    calls.load(model)
    (pid,) = pids(server) - before
    return pid


def kill(pid: int) -> None:
    """SIGKILL, and wait until the process is no more."""
    os.kill(pid, signal.SIGKILL)
    gone(pid, within_s=2.0)


def gone(pid: int, *, within_s: float) -> float:
    """Wait until a process is no more; how long that took, in seconds."""
    began_s = time.monotonic()
    eventually(lambda: not psutil.pid_exists(pid) or _is_dead(pid), within_s=within_s, what=f"process {pid} is gone")
    return time.monotonic() - began_s


def _is_dead(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def next_pid(server: RunningServer, known: Collection[int], *, within_s: float = 15.0) -> int:
    """Wait for a worker that was not there before."""
    return eventually(lambda: min(pids(server) - set(known), default=0), within_s=within_s, what="a new worker")
