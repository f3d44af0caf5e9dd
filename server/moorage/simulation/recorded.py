"""Recorded traces: CSV with a line per request, in the order of time."""

import csv
import math
from itertools import pairwise
from pathlib import Path

from moorage.simulation.reading import ScenarioError, shown
from moorage.simulation.scenario import Recorded, RecordedRequest

COLUMNS = ("time_s", "model", "rows", "priority")


def read_trace(path: Path) -> Recorded:
    """All of a trace. priority may be empty or 0: the model's own.

    Raises ScenarioError, which names file, line and column.
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            lines = csv.reader(file)
            header = next(lines, [])
            if tuple(header) != COLUMNS:
                raise ScenarioError(f"{path}: line 1: expected {','.join(COLUMNS)}, got {shown(','.join(header))}")
            return _in_order(path, [_request(f"{path}: line {lines.line_num}", cells) for cells in lines if cells])
    except (OSError, ValueError, csv.Error) as error:  # ValueError: a NUL in the path, or not UTF-8
        if isinstance(error, ScenarioError):
            raise
        reason = error.strerror if isinstance(error, OSError) else error
        raise ScenarioError(f"{path}: cannot be read: {reason}") from None


def _request(where: str, cells: list[str]) -> RecordedRequest:
    if len(cells) != len(COLUMNS):
        raise ScenarioError(f"{where}: expected {len(COLUMNS)} columns, got {len(cells)}")
    time, model, rows, priority = cells
    return RecordedRequest(
        _seconds(f"{where}: time_s", time),
        model,
        _whole(f"{where}: rows", rows, 1, 10**9),
        _whole(f"{where}: priority", priority or "0", 0, 5),
    )


def _seconds(where: str, cell: str) -> float:
    try:
        seconds = float(cell)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise ScenarioError(f"{where}: expected seconds from 0, got {shown(cell)}")
    return seconds


def _whole(where: str, cell: str, least: int, most: int) -> int:
    number = int(cell) if cell.isascii() and cell.isdigit() and len(cell) < 12 else -1
    if not least <= number <= most:
        raise ScenarioError(f"{where}: expected a whole number from {least} to {most}, got {shown(cell)}")
    return number


def _in_order(path: Path, requests: list[RecordedRequest]) -> Recorded:
    for earlier, later in pairwise(requests):
        if later.time_s < earlier.time_s:
            raise ScenarioError(f"{path}: expected times that never fall, got {later.time_s} after {earlier.time_s}")
    return Recorded(tuple(requests))
