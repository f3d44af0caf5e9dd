"""What an item costs on one stream, and in a batch, beside unary calls: `python -m benchmarks.streams`.

`identity` on one server: so many callers with a unary call each, one stream with as many requests under way, and a
batch with 512 items under way, in packs of 64, durable and not; taken in turn, round after round. Server CPU counts the
whole process tree. The server is pinned to the first core and the client to the second. Prints medians and ratios to
unary.
"""

import argparse
import os
import tempfile
from collections import defaultdict

from rich.console import Console

from benchmarks.batch_load import OUTSTANDING
from benchmarks.hot_path import MOORAGE, Cell, Measured, Server, measure, report

UNARY, BATCH = "benchmarks.load", "benchmarks.batch_load"
WAYS: dict[str, tuple[str, tuple[str, ...]]] = {
    "unary": (UNARY, ()),
    "stream": (UNARY, ("--stream",)),
    "batch": (BATCH, ()),
    "durable batch": (BATCH, ("--durable",)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each cell, way and round")
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 32])
    parser.add_argument("--workloads", nargs="+", default=["64B", "600KB"])
    options = parser.parse_args()
    cells = [Cell(workload, count) for workload in options.workloads for count in options.concurrency]
    results: dict[tuple[Cell, str], list[Measured]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MOORAGE_BATCHES__PATH"] = f"{folder}/batches.db"
        server = Server(MOORAGE)
        try:
            for cell in cells:
                for way in WAYS:
                    load(server, cell, way, 0.5)
            for _ in range(options.rounds):
                for cell in cells:
                    for way in WAYS:
                        results[cell, way].append(load(server, cell, way, options.seconds))
        finally:
            server.stop()
    Console().print(report(results, "way", "unary"))


def load(server: Server, cell: Cell, way: str, seconds: float) -> Measured:
    module, arguments = WAYS[way]
    if module == BATCH:
        cell = Cell(cell.workload, OUTSTANDING)
    return measure(server, cell, seconds, *arguments, load=module)


if __name__ == "__main__":
    main()
