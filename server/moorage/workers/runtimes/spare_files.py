"""Files that wait for the next copy: to write over one is quick, as its pages and its place on disk are there."""

import os
import tempfile
import threading
from typing import IO, NamedTuple

# Of files that were given up, so much is kept by a process.
SPARE_BYTES = 256 * 1024**2


class File(NamedTuple):
    """Open, without a name, and with room for so many bytes that is certain to be there."""

    file: IO[bytes]
    size_bytes: int

    def fileno(self) -> int:
        return self.file.fileno()


class SpareFiles:
    """Files without a name, in the directory that TMPDIR says: nothing is left of them when the process ends.

    A new file's pages have to be found and cleared, on a virtual machine even by its host: that can take twenty times
    as long as to write over them, and whoever waits for the memory waits for that too. Called from any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spare: list[File] = []

    def take(self, size_bytes: int) -> File:
        """A file with room for so much. Raises OSError where the file system has none, before anything is written."""
        spare = self._best(size_bytes)
        try:
            return _with_room(spare, size_bytes)
        except OSError:
            if not self.close():
                raise
        return _with_room(None, size_bytes)

    def _best(self, size_bytes: int) -> File | None:
        """The smallest that is large enough, else the largest; it is no longer spare."""
        with self._lock:
            if not self._spare:
                return None
            enough = [file for file in self._spare if file.size_bytes >= size_bytes]
            best = min(enough, key=_size) if enough else max(self._spare, key=_size)
            self._spare.remove(best)
            return best

    def give_up(self, file: File) -> None:
        """Nobody looks at what is in it any more. The oldest go, where there would be too much."""
        if file.size_bytes > SPARE_BYTES:
            file.file.close()
            return
        with self._lock:
            self._spare.append(file)
            while sum(map(_size, self._spare)) > SPARE_BYTES:
                self._spare.pop(0).file.close()

    def close(self) -> bool:
        """Give all their room back; whether there was any."""
        with self._lock:
            spare, self._spare = self._spare, []
        for file in spare:
            file.file.close()
        return bool(spare)


def _size(file: File) -> int:
    return file.size_bytes


def _with_room(spare: File | None, size_bytes: int) -> File:
    """Made as large as is asked for, or opened so. What can't be had is closed."""
    if spare is None:
        spare = File(tempfile.TemporaryFile(prefix="moorage-", buffering=0), 0)  # noqa: SIM115 - its owner closes it
    file, had_bytes = spare
    try:
        if had_bytes > size_bytes:
            os.ftruncate(file.fileno(), size_bytes)
        elif had_bytes < size_bytes and hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size_bytes)
    except BaseException:
        file.close()
        raise
    return File(file, size_bytes)
