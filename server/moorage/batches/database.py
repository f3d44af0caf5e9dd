"""The file of the store: opened, checked and brought to the newest schema."""

import fcntl
import os
import sqlite3
from pathlib import Path

from moorage.batches.statements import migrations

_APPLICATION_ID = 0x4D6F6F42  # "MooB"
_LOCK_SUFFIX = "-owner"
_LOCK_WAIT_S = 5.0
_WAL_PAGES = 2000


class StoreRefused(Exception):
    """The file is not for this server to use, and was left as it is."""


class StoreInUse(StoreRefused):
    """Another server has it, and lives."""


class Ownership:
    """Of a store's file, for one process, until it ends in whatever way: the kernel knows, and no clock is needed."""

    def __init__(self, path: Path) -> None:
        """Raises StoreInUse, and OSError where no file can be made beside it."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(f"{path}{_LOCK_SUFFIX}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._file)
            raise StoreInUse(f"{path}: another server has its batches there") from None

    def end(self) -> None:
        os.close(self._file)


def open_database(path: Path, *, max_bytes: int, fsync: bool) -> sqlite3.Connection:
    """A connection for one thread, begun in autocommit mode.

    max_bytes: the file grows to no more. fsync: whether a commit survives the loss of power, and not only of the
    process. Raises StoreRefused for a file of a newer Moorage or of another program, sqlite3.Error and OSError where
    it can't be used.
    """
    connection = sqlite3.connect(path, timeout=_LOCK_WAIT_S, isolation_level=None, check_same_thread=False)
    try:
        connection.row_factory = sqlite3.Row
        _check_owner(connection, path)
        # What is deleted is given back bit by bit. Has no effect on a file that has tables.
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {'FULL' if fsync else 'NORMAL'}")
        connection.execute(f"PRAGMA wal_autocheckpoint = {_WAL_PAGES}")
        page_bytes = connection.execute("PRAGMA page_size").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {max(16, max_bytes // page_bytes)}")
        _migrate(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _check_owner(connection: sqlite3.Connection, path: Path) -> None:
    owner = connection.execute("PRAGMA application_id").fetchone()[0]
    is_empty = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
    if owner != _APPLICATION_ID and not is_empty:
        raise StoreRefused(f"{path}: expected a store of batches, got the database of another program")
    version = _version(connection)
    if version > len(migrations()):
        raise StoreRefused(f"{path}: its schema is version {version}, this Moorage knows up to {len(migrations())}")


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _migrate(connection: sqlite3.Connection) -> None:
    """Each step in a transaction of its own, so that one which is cut off is begun again."""
    for number in range(_version(connection) + 1, len(migrations()) + 1):
        connection.executescript(
            f"BEGIN IMMEDIATE; PRAGMA application_id = {_APPLICATION_ID}; {migrations()[number - 1]}"
            f"PRAGMA user_version = {number}; COMMIT;"
        )
