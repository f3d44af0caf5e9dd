"""One SQLite file for all durable batches, written by one thread.

What is asked for while a transaction is being written shares the next one (group commit), so that a commit, which
waits for the disk, is paid for by many. A call returns when its transaction is on disk.
"""

import asyncio
import contextlib
import queue
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from moorage.batches.database import Ownership, open_database
from moorage.domain.batch_errors import StoreFailed, StoreFull

Result = TypeVar("Result")

_MOST_IN_ONE = 256


class _Job(NamedTuple):
    work: Callable[[sqlite3.Connection], Any]
    future: "asyncio.Future[Any]"


class Store:
    """Runs functions of a connection, each in a transaction, in the order in which they were asked for."""

    def __init__(self, path: Path, *, max_bytes: int, fsync: bool) -> None:
        self.path = path
        self.max_bytes = max_bytes
        self._fsync = fsync
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._connection: sqlite3.Connection | None = None
        self._ownership: Ownership | None = None
        self._thread = threading.Thread(target=self._work, name="batches", daemon=True)

    async def open(self) -> None:
        """Raises StoreRefused (StoreInUse: another server has it), sqlite3.Error and OSError."""
        self._ownership = await asyncio.to_thread(Ownership, self.path)
        try:
            self._connection = await asyncio.to_thread(
                open_database, self.path, max_bytes=self.max_bytes, fsync=self._fsync
            )
        except BaseException:
            self._ownership.end()
            raise
        self._thread.start()

    async def do(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        """What `work` returns, once it is on disk. It may be called more than once, and has to raise to be undone.

        Raises StoreFull or StoreFailed where it could not be kept, else what `work` raises. Cancellation: it is done or
        not; who needs to know shields the call.
        """
        future: asyncio.Future[Result] = self._loop.create_future()
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._jobs.put(_Job(work, future))
        return await future

    async def close(self) -> None:
        """Do what was asked for, and close the file. Nothing may be asked for afterwards."""
        if self._thread.ident:
            self._jobs.put(None)
            await asyncio.to_thread(self._thread.join)
        if self._ownership is not None:
            self._ownership.end()
            self._ownership = None

    def _work(self) -> None:
        assert self._connection is not None
        is_open = True
        while is_open:
            jobs = self._next_jobs()
            is_open = jobs[-1] is not None
            self._do_all(self._connection, [job for job in jobs if job is not None])
        self._connection.close()

    def _next_jobs(self) -> "list[_Job | None]":
        """Wait for one; with it come those that wait."""
        jobs = [self._jobs.get()]
        with contextlib.suppress(queue.Empty):
            while jobs[-1] is not None and len(jobs) < _MOST_IN_ONE:
                jobs.append(self._jobs.get_nowait())
        return jobs

    def _do_all(self, connection: sqlite3.Connection, jobs: list[_Job]) -> None:
        """All in one transaction; where that fails, each in its own, so that one costs the others nothing."""
        if not jobs:
            return
        try:
            results = _in_transaction(connection, jobs)
        except BaseException as error:
            if len(jobs) > 1:
                for job in jobs:
                    self._do_all(connection, [job])
            else:
                self._tell(jobs[0].future, None, _as_ours(error))
            return
        for job, result in zip(jobs, results, strict=True):
            self._tell(job.future, result, None)

    def _tell(self, future: "asyncio.Future[Any]", result: Any, error: BaseException | None) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended in the meantime
            self._loop.call_soon_threadsafe(_settle, future, result, error)


def _settle(future: "asyncio.Future[Any]", result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)


def _in_transaction(connection: sqlite3.Connection, jobs: list[_Job]) -> list[Any]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        results = [job.work(connection) for job in jobs]
        connection.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):  # a full disk has rolled it back already
            connection.execute("ROLLBACK")
        raise
    return results


def _as_ours(error: BaseException) -> BaseException:
    """What callers of the server may be told of a failure of SQLite's."""
    if not isinstance(error, sqlite3.Error):
        return error
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return StoreFull()
    failed = StoreFailed(str(error))
    failed.__cause__ = error
    return failed
