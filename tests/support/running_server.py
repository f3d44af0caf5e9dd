"""A real server: `moorage serve` as a process of its own, with its real workers."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

START_LIMIT_S = 30.0
STOP_LIMIT_S = 45.0


@dataclass
class RunningServer:
    """process: the server. grpc, http: its addresses. logs: what it has written to stderr so far."""

    process: subprocess.Popen[str]
    grpc: str
    http: str
    log_file: Path
    _readers: list[threading.Thread] = field(default_factory=list)

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def logs(self) -> str:
        return self.log_file.read_text(errors="replace")

    def workers(self) -> list[psutil.Process]:
        """The live worker processes."""
        return [child for child in psutil.Process(self.pid).children() if _is_worker(child)]

    def terminate(self) -> int:
        """SIGTERM, and the exit code once the server has ended."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_LIMIT_S)


def _is_worker(process: psutil.Process) -> bool:
    try:
        return "moorage.workers.child" in process.cmdline()
    except psutil.NoSuchProcess:  # a zombie too
        return False


@contextmanager
def running_server(
    models: Path,
    log_folder: Path,
    *,
    budget: str = "2GiB",
    grpc: str = "127.0.0.1:0",
    environment: dict[str, str] | None = None,
) -> Iterator[RunningServer]:
    """Serve a repository, on free ports unless told. The server is gone when the block ends, however that happens."""
    log_file = log_folder / f"server-{time.monotonic_ns()}.log"
    command = [sys.executable, "-m", "moorage", "serve", "--models", str(models)]
    command += ["--grpc", grpc, "--http", "127.0.0.1:0", "--budget", budget]
    ours = {"MOORAGE_SERVER__CHECK_INTEGRITY": "true", "MOORAGE_BATCHES__PATH": str(log_folder / "batches.db")}
    variables = {**os.environ, **ours, **(environment or {})}
    with log_file.open("w") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=variables)
    try:
        grpc_address, http_address = _addresses(process, log_file)
        yield RunningServer(process, grpc_address, http_address, log_file)
    finally:
        _end(process)


def _addresses(process: subprocess.Popen[str], log_file: Path) -> tuple[str, str]:
    """Read the banner. The timer ends a server that never prints it, and with it the read."""
    assert process.stdout is not None
    timer = threading.Timer(START_LIMIT_S, process.kill)
    timer.start()
    try:
        lines = [process.stdout.readline(), process.stdout.readline()]
    finally:
        timer.cancel()
    found = [re.search(r"^\w+\s+(\S+:\d+|off)\s*$", line) for line in lines]
    grpc, http = found
    if grpc is None or http is None:
        raise RuntimeError(f"the server did not start: {lines}\n{log_file.read_text(errors='replace')}")
    return grpc[1], http[1]


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    assert process.stdout is not None
    process.stdout.close()
