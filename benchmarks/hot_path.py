"""What a request costs beyond gRPC itself: Moorage's `identity` beside a raw grpc.aio server, in one run.

Both servers and the plain raw one stand at the same time; cells are taken in turn, round after round, so drifts of
the machine hit all alike. Server CPU counts the whole process tree, workers included. Servers are pinned to
the first core and the client to the second. Prints medians and ratios to the tuned raw server.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import psutil
from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent
MOORAGE = [
    *("-m", "moorage", "serve", "--models", str(HERE / "models"), "--grpc", "127.0.0.1:0", "--http", "off"),
    *("--budget", "2GiB"),
]
SERVERS = {
    "raw": ["-m", "benchmarks.raw_server"],
    "raw tuned": ["-m", "benchmarks.raw_server", "--tuned"],
    "moorage": MOORAGE,
}
REFERENCE = "raw tuned"


class Cell(NamedTuple):
    """One measured situation."""

    workload: str
    concurrency: int


class Measured(NamedTuple):
    """Server CPU in ms per request, requests per second, latency in ms."""

    cpu_ms: float
    per_second: float
    p50_ms: float
    p99_ms: float


class Server:
    """A server process and its tree, on the first core alone unless it has all of them."""

    def __init__(self, arguments: list[str], *, all_cores: bool = False) -> None:
        self._process = subprocess.Popen(
            [sys.executable, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=dict(os.environ) if all_cores else {**os.environ, "OMP_NUM_THREADS": "1"},
        )
        if not all_cores:
            pin(self._process.pid, 0)
        assert self._process.stdout is not None
        found = re.search(r"(\S+:\d+)", self._process.stdout.readline())
        assert found is not None, "the server did not say where it listens"
        self.target = found[1]

    @property
    def pid(self) -> int:
        return self._process.pid

    def cpu_s(self) -> float:
        """CPU seconds of the whole tree so far."""
        parent = psutil.Process(self._process.pid)
        tree = [parent, *parent.children(recursive=True)]
        return sum(times.user + times.system for times in (process.cpu_times() for process in tree))

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(30)


def pin(pid: int, core: int) -> None:
    """Keep a process on one core, where there are several."""
    cores = psutil.Process().cpu_affinity()
    if len(cores) > 1:
        psutil.Process(pid).cpu_affinity([cores[core]])


def measure(server: Server, cell: Cell, seconds: float, *options: str, load: str = "benchmarks.load") -> Measured:
    """Load one server for some seconds. load: the module that does. options: of it."""
    command = [sys.executable, "-m", load, "--target", server.target, "--workload", cell.workload]
    command += ["--concurrency", str(cell.concurrency), "--seconds", str(seconds), *options]
    before_s = server.cpu_s()
    client = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    pin(client.pid, 1)
    output, _ = client.communicate(timeout=seconds + 60)
    assert client.returncode == 0, "the client failed"
    result = json.loads(output)
    used_s = server.cpu_s() - before_s
    count = result["requests"]
    return Measured(used_s / count * 1e3, count / result["seconds"], result["p50_ms"], result["p99_ms"])


def medians(measured: list[Measured]) -> Measured:
    return Measured(*(statistics.median(column) for column in zip(*measured, strict=True)))


def report(results: dict[tuple[Cell, str], list[Measured]], kind: str, reference_name: str) -> Table:
    """A row per cell and name, with ratios to the reference. kind: of what the names are."""
    table = Table("cell", kind, "CPU ms", "ratio", "req/s", "ratio", "p50 ms", "p99 ms")
    for (cell, name), measured in sorted(results.items()):
        row, reference = medians(measured), medians(results[cell, reference_name])
        table.add_row(
            f"{cell.workload} x{cell.concurrency}",
            name,
            f"{row.cpu_ms:.3f}",
            f"{row.cpu_ms / reference.cpu_ms:.2f}",
            f"{row.per_second:.0f}",
            f"{row.per_second / reference.per_second:.2f}",
            f"{row.p50_ms:.2f}",
            f"{row.p99_ms:.2f}",
        )
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each cell, server and round")
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--workloads", nargs="+", default=["64B", "600KB"])
    options = parser.parse_args()
    cells = [Cell(workload, count) for workload in options.workloads for count in options.concurrency]
    results: dict[tuple[Cell, str], list[Measured]] = defaultdict(list)
    with ExitStack() as stack:
        servers = {name: Server(arguments) for name, arguments in SERVERS.items()}
        for server in servers.values():
            stack.callback(server.stop)
        for cell in cells:  # warm up, unmeasured: loads the model, grows the heaps
            for server in servers.values():
                measure(server, cell, 0.5)
        names = list(servers)
        for number in range(options.rounds):
            for cell in cells:
                for name in names[number % len(names) :] + names[: number % len(names)]:
                    results[cell, name].append(measure(servers[name], cell, options.seconds))
    Console().print(report(results, "server", REFERENCE))


if __name__ == "__main__":
    main()
