"""A real `moorage serve`, with settings of its own, for as long as a block lasts."""

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from moorage_client import Client, DeviceStatus
from tests.gpu.machine import Machine

START_LIMIT_S = 60.0
STOP_LIMIT_S = 20.0
_ADDRESS = re.compile(r"gRPC\s+(\S+:\d+)")

_SETTINGS = """
[server]
grpc = "127.0.0.1:0"
http = "off"
grace_s = 5.0
footprints = "off"
check_integrity = true
[repository]
path = "{models}"
[devices."{device}"]
budget = "{budget_bytes} B"
context = "{context_bytes} B"
host_budget = "{host_budget_bytes} B"
run_slots = {run_slots}
"""


@dataclass(frozen=True, slots=True)
class Served:
    """client: connected. pid: the server's. log_file: what it has written to stderr."""

    client: Client
    pid: int
    log_file: Path

    async def device(self) -> DeviceStatus:
        """The ledger of the one device."""
        return (await self.client.snapshot()).devices[0]

    def worker_pid(self) -> int:
        """The process with the models. Raises AssertionError where there is not exactly one."""
        workers = [child.pid for child in psutil.Process(self.pid).children() if _is_worker(child)]
        assert len(workers) == 1, f"expected one worker, found {workers}"
        return workers[0]

    def log_tail(self, lines: int = 12) -> str:
        return "\n".join(self.log_file.read_text(errors="replace").splitlines()[-lines:])


def _is_worker(process: psutil.Process) -> bool:
    try:
        return "moorage.workers.child" in process.cmdline()
    except psutil.NoSuchProcess:
        return False


@asynccontextmanager
async def serving(machine: Machine, name: str, models: Path, run_slots: int = 1) -> AsyncIterator[Served]:
    """Serve a repository on free ports. The server is gone when the block ends, however that happens."""
    settings = machine.folder / f"{name}.toml"
    settings.write_text(
        _SETTINGS.format(
            models=models,
            device=machine.device,
            budget_bytes=machine.budget_bytes,
            context_bytes=machine.context_bytes,
            host_budget_bytes=machine.host_budget_bytes,
            run_slots=run_slots,
        )
    )
    log_file = machine.folder / f"{name}.log"
    process = _start(settings, log_file)
    try:
        address = await asyncio.wait_for(asyncio.to_thread(_address, process, log_file), START_LIMIT_S)
        async with Client(address) as client:
            await client.wait_until_ready(START_LIMIT_S)
            yield Served(client, process.pid, log_file)
    finally:
        _end(process)


def _start(settings: Path, log_file: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-P", "-m", "moorage", "serve", "--config", str(settings)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MOORAGE_")}
    with log_file.open("w") as log:
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment)


def _address(process: subprocess.Popen[str], log_file: Path) -> str:
    """Where it serves gRPC, from its banner. A server that ends has said why."""
    assert process.stdout is not None
    found = _ADDRESS.match(process.stdout.readline())
    if found is None:
        raise RuntimeError(f"the server did not start: {log_file.read_text(errors='replace')[-2000:]}")
    return found[1]


def _end(process: subprocess.Popen[str]) -> None:
    """In good order, by force after a while. A server that is killed takes its workers with it."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    assert process.stdout is not None
    process.stdout.close()
