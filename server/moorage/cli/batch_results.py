"""What became of a batch's items, as JSON lines in a file; and how far such a file goes."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from moorage.cli.outputs import plain
from moorage.cli.terminal import WRONG_USAGE, fail
from moorage_client import BatchResult

_FLUSH_EVERY = 256
_TAIL_BYTES = 64 * 1024


class Results:
    """A file that is written to. sequence: the last that it has."""

    def __init__(self, file: IO[str], sequence: int) -> None:
        self.sequence = sequence
        self.failed = 0
        self._file = file
        self._unflushed = 0

    def write(self, result: BatchResult) -> None:
        """A line. It is on its way to the disk after some hundred more, and at the end."""
        self._file.write(json.dumps(_document(result), ensure_ascii=False, allow_nan=False) + "\n")
        self.sequence = result.sequence
        self.failed += result.error is not None
        self._unflushed += 1
        if self._unflushed >= _FLUSH_EVERY:
            self.flush()

    def flush(self) -> None:
        self._unflushed = 0
        self._file.flush()


def _document(result: BatchResult) -> dict[str, Any]:
    """outputs of a model that answers once; responses, a list of such, where there are none or several."""
    told: dict[str, Any] = {"id": result.item_id, "sequence": result.sequence}
    if result.error is not None:
        return told | {"error": {"code": result.error.code, "message": result.error.message}}
    responses = [{name: plain(array) for name, array in outputs.items()} for outputs in result.responses]
    return told | ({"outputs": responses[0]} if len(responses) == 1 else {"responses": responses})


@contextmanager
def results_in(path: str, *, goes_on: bool, after_sequence: int = 0) -> Iterator[Results]:
    """The file at a path, to be written to; "-" is stdout. A file that has results ends the command, unless goes_on:
    then those that follow are added to it."""
    if path == "-":
        yield Results(sys.stdout, after_sequence)
        sys.stdout.flush()
        return
    try:
        sequence = last_sequence(Path(path))
        if sequence and not goes_on:
            fail(f"--out {path}: has results already; give --id to go on with their batch, or --force", WRONG_USAGE)
        with open(path, "a", encoding="utf-8") as file:
            results = Results(file, max(sequence, after_sequence))
            try:
                yield results
            finally:
                results.flush()
    except OSError as error:
        fail(f"--out {path}: {error.strerror or error}", WRONG_USAGE)


def last_sequence(path: Path) -> int:
    """Of the last whole line; 0 without one. A line that was cut off is taken away, as its result comes again."""
    if not path.exists() or not path.stat().st_size:
        return 0
    with path.open("r+b") as file:
        end = _end_of_last_line(file)
        file.truncate(end)
        line = _last_line(file, end)
    try:
        return int(json.loads(line)["sequence"]) if line else 0
    except (ValueError, KeyError, TypeError):
        fail(f"--out {path}: expected results of a batch as JSON lines, got {line[:60]!r}", WRONG_USAGE)


def _end_of_last_line(file: IO[bytes]) -> int:
    """Where the last newline ends; 0 without one."""
    position = file.seek(0, os.SEEK_END)
    while position:
        begin = max(0, position - _TAIL_BYTES)
        file.seek(begin)
        found = file.read(position - begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        position = begin
    return 0


def _last_line(file: IO[bytes], end: int) -> bytes:
    """The line that ends there, without its newline."""
    begin, line = end - 1, b""
    while begin > 0:
        size = min(_TAIL_BYTES, begin)
        file.seek(begin - size)
        part = file.read(size)
        found = part.rfind(b"\n")
        if found >= 0:
            return part[found + 1 :] + line
        line, begin = part + line, begin - size
    return line
