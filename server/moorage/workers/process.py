"""One worker process as its parent sees it: started, watched, ended."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping

import psutil

# A worker sends a sign of life this often, from outside Python, so that no model can hold it back.
HEARTBEAT_S = 0.2
# So many checks in a row without one, and a process that the system says is stopped is given up. Counted in checks
# rather than in seconds, since a server that was itself not running has not looked.
MISSED_HEARTBEATS = 5
# One that is not stopped is only short of processor time, as on a saturated core: seconds of that have been seen.
MISSED_HEARTBEATS_AT_MOST = 50
START_TIMEOUT_S = 60.0
# A process that ends closes its sockets a moment before the kernel tells of its end.
_LAST_MOMENTS_S = 0.1


class WorkerProcess:
    """Starts a worker and reports its end exactly once, by on_end(reason).

    control, handles: this side's ends of the sockets; their owner closes them.
    environment: variables for the process, unless the server's own environment sets them.
    """

    def __init__(self, device: str, environment: Mapping[str, str], on_end: Callable[[str], None]) -> None:
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._ended = False
        self._kill_reason: str | None = None
        self._missed = 0
        self.control, child_control = socket.socketpair()
        self.handles, child_handles = socket.socketpair()
        self._heartbeat, child_heartbeat = socket.socketpair()
        self._heartbeat.setblocking(False)
        with child_control, child_handles, child_heartbeat:
            self._process = _start(device, environment, [child_control, child_handles, child_heartbeat])
        self._watch = os.pidfd_open(self._process.pid)
        self._loop.add_reader(self._watch, self._exited)
        self._check = self._loop.call_later(START_TIMEOUT_S, self._never_came)

    @property
    def pid(self) -> int:
        return self._process.pid

    def came_up(self) -> None:
        """The worker has said hello: from now on its heartbeat is watched."""
        self._check.cancel()
        self._schedule_check()

    def kill(self, reason: str) -> None:
        """End the process now. Its end is reported with this reason."""
        if not self._ended and self._kill_reason is None:
            self._kill_reason = reason
            self._process.send_signal(signal.SIGKILL)

    def give_up(self, reason: str) -> None:
        """End a process that no longer talks; one that is just ending is left to, and its own reason is told."""
        self._loop.call_later(_LAST_MOMENTS_S, self.kill, reason)

    def _never_came(self) -> None:
        self.kill(f"not up within {START_TIMEOUT_S:g} s")

    def _schedule_check(self) -> None:
        self._check = self._loop.call_later(HEARTBEAT_S, self._check_heartbeat)

    def _check_heartbeat(self) -> None:
        self._missed = 0 if self._beats() else self._missed + 1
        if self._missed >= MISSED_HEARTBEATS_AT_MOST or (self._missed >= MISSED_HEARTBEATS and self._is_stopped()):
            self.kill(f"no sign of life for {self._missed * HEARTBEAT_S:.1f} s")
        self._schedule_check()

    def _is_stopped(self) -> bool:
        """Whether somebody has sent it SIGSTOP. A process under a debugger is not meant."""
        try:
            return psutil.Process(self.pid).status() == psutil.STATUS_STOPPED
        except psutil.Error:
            return False

    def _beats(self) -> bool:
        try:
            return bool(self._heartbeat.recv(4096))
        except BlockingIOError:
            return False

    def _exited(self) -> None:
        """The kernel says that the process is gone: collect it, and tell."""
        self._ended = True
        self._loop.remove_reader(self._watch)
        os.close(self._watch)
        self._check.cancel()
        self._heartbeat.close()
        code = self._process.wait()
        killed_for = self._kill_reason if code == -signal.SIGKILL else None
        self._on_end(killed_for or _describe(code))


def _start(device: str, environment: Mapping[str, str], ends: list[socket.socket]) -> subprocess.Popen[bytes]:
    numbers = [str(end.fileno()) for end in ends]
    # -P: the working directory is no place to import from.
    command = [sys.executable, "-P", "-m", "moorage.workers.child", device, str(os.getpid()), *numbers]
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr.fileno() if _has_descriptor(sys.stderr) else None,
        pass_fds=[end.fileno() for end in ends],
        env={**environment, **os.environ},
        # A signal to the terminal's group is for the server, which then ends its workers in good order.
        start_new_session=True,
    )


def _has_descriptor(stream: object) -> bool:
    try:
        stream.fileno()  # type: ignore[attr-defined]
    except (AttributeError, OSError):
        return False
    return True


def _describe(code: int) -> str:
    if code >= 0:
        return f"exited with status {code}"
    try:
        return f"ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"ended by signal {-code}"
