"""What batching gains, and what it costs a lone caller: `python -m benchmarks.batching`.

Each model stands twice on one server: as it is, and with one request a run. Cells are taken in turn, round after
round. The server is pinned to the first core and its callers, who ask again when they are answered, to the second; with
`--all-cores` neither is, and torch uses as many threads as it does by itself. Medians over rounds.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks.hot_path import Server, pin

EXAMPLES = Path(__file__).parent.parent / "examples" / "models"
MODELS = ("mlp", "embedder")
OFF = "_one_by_one"


class Figures(NamedTuple):
    """Of closed loops: requests per second, and latencies in ms."""

    per_second: float
    p50_ms: float
    p99_ms: float


def write_models(folder: Path) -> None:
    """Each model as it is, and with one row a run."""
    for name in MODELS:
        shutil.copytree(EXAMPLES / name, folder / name)
        shutil.copytree(EXAMPLES / name, folder / (name + OFF))
        manifest = folder / (name + OFF) / "model.toml"
        text = manifest.read_text()
        assert "max_batch_size = 32" in text
        manifest.write_text(text.replace("max_batch_size = 32", "max_batch_size = 1"))


def measure(target: str, workload: str, model: str, callers: int, seconds: float, *, all_cores: bool) -> Figures:
    """So many callers for some seconds."""
    command = [sys.executable, "-m", "benchmarks.load", "--target", target, "--workload", workload, "--model", model]
    command += ["--concurrency", str(callers), "--seconds", str(seconds)]
    client = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    if not all_cores:
        pin(client.pid, 1)
    output, _ = client.communicate(timeout=seconds + 120)
    assert client.returncode == 0, "the client failed"
    found = json.loads(output)
    return Figures(found["requests"] / found["seconds"], found["p50_ms"], found["p99_ms"])


def report(results: dict[tuple[str, int, str], list[Figures]]) -> Table:
    """A row per model and number of callers."""
    table = Table("model", "callers", "req/s", "off", "ratio", "p50 ms", "off", "p99 ms", "off")
    for workload, callers in dict.fromkeys((workload, callers) for workload, callers, _ in results):
        on, off = (_medians(results[workload, callers, model]) for model in (workload, workload + OFF))
        ratio = on.per_second / off.per_second
        cells = [f"{on.per_second:.0f}", f"{off.per_second:.0f}", f"{ratio:.2f}", f"{on.p50_ms:.1f}"]
        cells += [f"{off.p50_ms:.1f}", f"{on.p99_ms:.1f}", f"{off.p99_ms:.1f}"]
        table.add_row(workload, str(callers), *cells)
    return table


def _medians(measured: list[Figures]) -> Figures:
    return Figures(*(statistics.median(column) for column in zip(*measured, strict=True)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each cell and round")
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32, 64])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--all-cores", action="store_true", help="pin nobody")
    options = parser.parse_args()
    cells = [
        (name, count, model) for name in options.models for count in options.concurrency for model in (name, name + OFF)
    ]
    results: dict[tuple[str, int, str], list[Figures]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        write_models(Path(folder))
        server = Server(
            [
                "-m",
                "moorage",
                "serve",
                "--models",
                folder,
                "--grpc",
                "127.0.0.1:0",
                "--http",
                "off",
                "--budget",
                "4GiB",
            ],
            all_cores=options.all_cores,
        )
        try:
            for workload, callers, model in cells:  # warm up, unmeasured
                measure(server.target, workload, model, callers, 0.5, all_cores=options.all_cores)
            for _ in range(options.rounds):
                for workload, callers, model in cells:
                    figures = measure(
                        server.target, workload, model, callers, options.seconds, all_cores=options.all_cores
                    )
                    results[workload, callers, model].append(figures)
        finally:
            server.stop()
    Console().print(report(results))


if __name__ == "__main__":
    main()
