"""A server as a child process: started, found, and always stopped again."""

import os
import queue
import re
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

ADDRESS = re.compile(r"gRPC\s+(\S+:\d+)")
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 45.0  # the server's own grace is 30 s
LINES_KEPT = 20


class ServerFailedError(Exception):
    """The server did not start or did not stop as it should. The message ends with its last lines."""


def serve_command(models: Path, *, budget: str) -> list[str]:
    """`moorage serve` for a folder of models, on a free port of this machine."""
    command = [sys.executable, "-m", "moorage", "serve", "--models", str(models)]
    return [*command, "--grpc", "127.0.0.1:0", "--http", "off", "--budget", budget]


class ServerProcess:
    """A running `moorage serve`: a context manager that is entered once the server has named its port.

    Leaving it ends the process, whatever happened; `stop` does so and looks at how it ended.
    """

    def __init__(self, command: Sequence[str], *, start_timeout_s: float = START_TIMEOUT_S) -> None:
        self._command = command
        self._start_timeout_s = start_timeout_s
        self._found: queue.Queue[str | None] = queue.Queue()
        self._last_lines: deque[str] = deque(maxlen=LINES_KEPT)
        self._process: subprocess.Popen[str] | None = None
        self.address = ""

    def __enter__(self) -> Self:
        # A session of its own: Ctrl-C in the terminal reaches us alone, and we stop the server once.
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            start_new_session=True,
        )
        try:
            # Read to the end, else a talkative server would block on a full pipe.
            threading.Thread(target=self._read, args=(self._process,), daemon=True).start()
            self.address = self._wait_for_address(self._process)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end()

    @property
    def pid(self) -> int:
        """The process's id, also after it has ended."""
        assert self._process is not None
        return self._process.pid

    def stop(self) -> None:
        """SIGTERM and wait. Raises ServerFailedError if the server did not exit 0 in time."""
        code = self._end()
        if code != 0:
            raise ServerFailedError(f"the server ended with exit code {code} after SIGTERM{self._tail()}")

    def _end(self) -> int | None:
        """Stop the process whatever it takes. Returns its exit code; a negative one is a signal."""
        process = self._process
        if process is None:
            return None
        if process.poll() is None:
            process.terminate()
        try:
            return process.wait(STOP_TIMEOUT_S)
        finally:
            # Too slow, or interrupted while waiting: no server may outlive the demo.
            if process.poll() is None:
                process.kill()
                process.wait()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                self._last_lines.append(line.rstrip())
                match = ADDRESS.search(line)
                if match:
                    self._found.put(match.group(1))
        self._found.put(None)

    def _wait_for_address(self, process: subprocess.Popen[str]) -> str:
        started = time.monotonic()
        try:
            address = self._found.get(timeout=self._start_timeout_s)
        except queue.Empty:
            raise ServerFailedError(
                f"the server named no gRPC port within {self._start_timeout_s:g} s{self._tail()}"
            ) from None
        if address is None:
            code = process.wait(STOP_TIMEOUT_S)
            after_s = time.monotonic() - started
            raise ServerFailedError(f"the server ended with exit code {code} after {after_s:.1f} s{self._tail()}")
        return address

    def _tail(self) -> str:
        lines = list(self._last_lines)
        return "; its last lines:\n  " + "\n  ".join(lines) if lines else "; it printed nothing"
