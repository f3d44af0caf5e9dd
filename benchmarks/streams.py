"""What an item costs on one stream, beside unary calls: `python -m benchmarks.streams`.

`identity` on one server: so many callers with a unary call each, and one stream with as many requests under way, taken
in turn, round after round. Server CPU counts the whole process tree. The server is pinned to the first core and the
client to the second. Prints medians and ratios to unary.
"""

import argparse
from collections import defaultdict

from rich.console import Console

from benchmarks.hot_path import MOORAGE, Cell, Measured, Server, measure, report

WAYS: dict[str, tuple[str, ...]] = {"unary": (), "stream": ("--stream",)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each cell, way and round")
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 32])
    parser.add_argument("--workloads", nargs="+", default=["64B", "600KB"])
    options = parser.parse_args()
    cells = [Cell(workload, count) for workload in options.workloads for count in options.concurrency]
    results: dict[tuple[Cell, str], list[Measured]] = defaultdict(list)
    server = Server(MOORAGE)
    try:
        for cell in cells:
            for arguments in WAYS.values():
                measure(server, cell, 0.5, *arguments)
        for _ in range(options.rounds):
            for cell in cells:
                for way, arguments in WAYS.items():
                    results[cell, way].append(measure(server, cell, options.seconds, *arguments))
    finally:
        server.stop()
    Console().print(report(results, "way", "unary"))


if __name__ == "__main__":
    main()
