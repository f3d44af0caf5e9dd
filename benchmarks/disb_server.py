"""The server under test, and the processes that load it: each on a core of its own, and none left behind."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

from benchmarks.disb_load import Counted, Plan

ROOT = Path(__file__).parents[1]
SERVER_CORE, CLIENT_CORE = 0, 1
START_TIMEOUT_S, STOP_TIMEOUT_S = 60.0, 45.0
MODELS = ("--models", str(ROOT / "benchmarks" / "models_disb"))
SERVE = ("-m", "moorage", "serve", *MODELS, "--grpc", "127.0.0.1:0", "--http", "off", "--budget", "2GiB")
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": str(ROOT),  # the models' networks are a module of the benchmarks
    "MOORAGE_DEVICES__CPU__RUN_SLOTS": "1",  # one run or step at a time
    "MOORAGE_SERVER__FOOTPRINTS": "off",  # no run of this benchmark learns from the one before
}


def pin(pid: int, core: int) -> None:
    """Keep a process that has just started, and all that it starts, to one of the cores that there are."""
    cores = psutil.Process().cpu_affinity()
    if len(cores) > 1:
        psutil.Process(pid).cpu_affinity([cores[core]])


class DisbServer:
    """A context manager: entered once the server has named its port, and gone when it is left."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._target = ""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, *SERVE],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, **ENVIRONMENT},
        )
        pin(self._process.pid, SERVER_CORE)
        assert self._process.stdout is not None
        found = re.search(r"(\S+:\d+)", self._process.stdout.readline())
        if found is None:
            self._end()
            raise RuntimeError("the server did not say where it listens")
        self._target = found[1]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        assert self._process is not None
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()  # its workers end with it
            self._process.wait()

    def load(self, plan: Plan) -> Counted:
        """Have a plan carried out. Raises RuntimeError where any request of it failed."""
        counted: Counted = run_json(
            "benchmarks.disb_load",
            "--target",
            self._target,
            core=CLIENT_CORE,
            given=plan,
            limit_s=plan["seconds"] + 120,
        )
        return counted


def run_json(module: str, *arguments: str, core: int, given: object = None, limit_s: float = 300.0) -> Any:
    """Run a module of the benchmarks that may read JSON and prints JSON.

    Raises RuntimeError where it fails, and TimeoutExpired, with the process ended.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    pin(process.pid, core)
    try:
        output, _ = process.communicate(json.dumps(given), timeout=limit_s)
    except BaseException:
        process.kill()
        process.wait()
        raise
    if process.returncode != 0:
        raise RuntimeError(f"{module} failed")
    return json.loads(output)
