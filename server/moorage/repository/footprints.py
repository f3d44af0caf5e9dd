"""What was measured of models, in one SQLite file, so that it survives restarts.

It has a rollback journal: of a save whose process is killed all or nothing is kept, several processes may use the file
at once, and it can be read from a read-only folder, which a write-ahead log could not.
"""

import contextlib
import errno
import logging
import os
import sqlite3
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from moorage.domain.model import Footprint
from moorage.repository import footprint_table
from moorage.repository.footprint_table import Damaged, FootprintKey, FootprintsRefused

__all__ = ["CORRUPT_SUFFIX", "FootprintKey", "FootprintStore", "FootprintsRefused"]

log = logging.getLogger(__name__)

Result = TypeVar("Result")

CORRUPT_SUFFIX = ".corrupt"

_LOCK_WAIT_S = 5.0
_DAMAGE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_BESIDE = ("-journal", "-wal", "-shm")  # what SQLite keeps of a file in others of its name


class FootprintStore:
    """Every call opens a connection of its own, blocks, and may come from any thread.

    For a lock of another process a call waits for at most 5 s. Where the file can't be used, the log says so once,
    until it can be used again: then nothing is remembered. A damaged file is moved aside, and a new one begun.
    """

    def __init__(self, path: Path, wall_clock: Callable[[], float] = time.time) -> None:
        """wall_clock: seconds since 1970."""
        self._path = path.absolute()
        self._wall_clock = wall_clock
        self._has_warned = False

    def load_all(self) -> dict[FootprintKey, Footprint]:
        """All that is remembered; rows that can't be true are left out. Does not begin a file.

        Raises FootprintsRefused for a file of a newer Moorage, or of another program.
        """
        return self._attempt(self._load, {})

    def save(self, items: Mapping[FootprintKey, Footprint]) -> bool:
        """Remember these, all or none, and forget what was not saved for 90 days. A None forgets nothing.

        False where the file can't be used. Raises FootprintsRefused as load_all does.
        """
        return self._attempt(lambda: self._save(items), False)

    def _load(self) -> dict[FootprintKey, Footprint]:
        if not self._path.exists():
            return {}
        with self._connection() as connection:
            found, left_out = footprint_table.read(connection)
        if left_out:
            log.warning("%s: %d entries make no sense and are left out", self._path, left_out)
        return found

    def _save(self, items: Mapping[FootprintKey, Footprint]) -> bool:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._connection() as connection:
            footprint_table.write(connection, items, self._wall_clock())
        return True

    def _attempt(self, work: Callable[[], Result], otherwise: Result) -> Result:
        try:
            result = self._on_a_sound_file(work)
        except FootprintsRefused as refusal:
            raise FootprintsRefused(f"{self._path}: {refusal}") from None
        except (sqlite3.Error, OSError) as error:
            self._warn(error)
            return otherwise
        self._has_warned = False
        return result

    def _on_a_sound_file(self, work: Callable[[], Result]) -> Result:
        before = self._identity()
        try:
            return work()
        except sqlite3.DatabaseError as error:
            if not _is_damage(error):
                raise
            # Where it is another file by now, somebody else has moved the damaged one already.
            if self._identity() == before:
                self._move_aside(error)
        return work()

    def _identity(self) -> tuple[int, int] | None:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            status = self._path.stat()
            if not stat.S_ISREG(status.st_mode):  # of all things, /dev/null must not be moved aside
                raise OSError(errno.EINVAL, "expected a plain file")
            return status.st_dev, status.st_ino
        return None

    def _move_aside(self, error: sqlite3.DatabaseError) -> None:
        path = os.path.realpath(self._path)
        aside = path + CORRUPT_SUFFIX
        # First what is beside it: a journal that stayed behind would be applied to the next file.
        for suffix in (*_BESIDE, ""):
            with contextlib.suppress(FileNotFoundError):
                os.replace(path + suffix, aside + suffix)
        log.warning("%s is damaged (%s): moved to %s, measuring anew", self._path, error, aside)

    def _warn(self, error: Exception) -> None:
        if not self._has_warned:
            self._has_warned = True
            log.warning("%s cannot be used: %s; what is measured of models is not remembered", self._path, error)

    @contextlib.contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        # isolation_level None: transactions begin and end where they are written.
        connection = sqlite3.connect(self._path, timeout=_LOCK_WAIT_S, isolation_level=None)
        with contextlib.closing(connection):
            # Undecodable text makes one row useless, not all of them.
            connection.text_factory = lambda text: text.decode(errors="replace")
            yield connection


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    # Extended codes have the plain one in their lowest byte.
    return isinstance(error, Damaged) or getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGE
