"""The file of durable batches: group commit, bounds, and whose it is."""

import asyncio
import contextlib
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest

from moorage.batches import database
from moorage.batches.database import StoreInUse, StoreRefused, open_database
from moorage.batches.header import Header
from moorage.batches.items import BatchState
from moorage.batches.journal import Journal
from moorage.batches.shelf import Shelf, header_of
from moorage.batches.statements import migrations, statements
from moorage.batches.store import Store
from moorage.domain.batch_errors import BatchExists, StoreFailed, StoreFull
from tests.unit.batches.journals import done, opened, some, told

MIB = 1024 * 1024


def run_sql(sql: str) -> Any:
    return lambda connection: connection.execute(sql).fetchall()


def test_what_waits_shares_a_transaction(tmp_path: Path) -> None:
    async def trial() -> None:
        async with opened(tmp_path / "batches.db") as store:
            await store.do(run_sql("CREATE TABLE commits (at)"))
            commits: list[int] = []

            def insert(connection: sqlite3.Connection) -> None:
                commits.append(connection.total_changes)
                connection.execute("INSERT INTO commits VALUES (1)")

            blocked = asyncio.ensure_future(store.do(lambda _: time.sleep(0.05)))
            await asyncio.gather(*(store.do(insert) for _ in range(100)))
            await blocked
            assert len(await store.do(run_sql("SELECT * FROM commits"))) == 100
            assert len(commits) == 100

    asyncio.run(trial())


def test_one_that_fails_costs_the_others_nothing(tmp_path: Path) -> None:
    async def trial() -> None:
        async with opened(tmp_path / "batches.db") as store:
            await store.do(run_sql("CREATE TABLE kept (name)"))
            blocked = asyncio.ensure_future(store.do(lambda _: time.sleep(0.05)))
            good = [asyncio.ensure_future(store.do(run_sql(f"INSERT INTO kept VALUES ({n})"))) for n in range(3)]
            bad = asyncio.ensure_future(store.do(run_sql("INSERT INTO nowhere VALUES (1)")))
            await asyncio.gather(blocked, *good)
            with pytest.raises(StoreFailed, match="nowhere"):
                await bad
            assert [row[0] for row in await store.do(run_sql("SELECT name FROM kept"))] == [0, 1, 2]

    asyncio.run(trial())


def test_a_full_store_keeps_nothing_of_the_call_and_has_room_again_after_a_batch_is_forgotten(tmp_path: Path) -> None:
    async def trial() -> None:
        async with opened(tmp_path / "batches.db", max_bytes=2 * MIB) as store:
            shelf = Shelf(store)
            journal = await shelf.make(Header("first", "model", durable=True), 1.0)
            with pytest.raises(StoreFull):
                await fill(journal)
            row = await shelf.find("first")
            assert row is not None
            assert row["received"] == journal.counts.received
            assert 20 <= journal.counts.received < 64
            assert journal.counts.received % 2 == 0
            with pytest.raises(StoreFull):
                await shelf.make(Header("second", "model", durable=True), 1.0)
            await shelf.forget(row["number"])
            await shelf.make(Header("second", "model", durable=True), 1.0)

    asyncio.run(trial())


async def fill(journal: Journal) -> None:
    for number in range(100):
        await journal.add(some(f"{number}a", f"{number}b", payload=bytes(64 * 1024)))


def test_a_file_has_one_owner(tmp_path: Path) -> None:
    async def trial() -> None:
        path = tmp_path / "batches.db"
        async with opened(path):
            with pytest.raises(StoreInUse, match="another server"):
                await Store(path, max_bytes=MIB, fsync=False).open()
        async with opened(path):
            pass

    asyncio.run(trial())


def test_a_newer_schema_and_the_files_of_others_are_left_as_they_are(tmp_path: Path) -> None:
    newer, foreign = tmp_path / "newer.db", tmp_path / "foreign.db"
    open_database(newer, max_bytes=MIB, fsync=False).close()
    with contextlib.closing(sqlite3.connect(newer)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("PRAGMA user_version = 99")
    with contextlib.closing(sqlite3.connect(foreign)) as connection:
        connection.execute("CREATE TABLE recipes (name)")
    before = newer.read_bytes(), foreign.read_bytes()
    with pytest.raises(StoreRefused, match="version 99"):
        open_database(newer, max_bytes=MIB, fsync=False)
    with pytest.raises(StoreRefused, match="another program"):
        open_database(foreign, max_bytes=MIB, fsync=False)
    assert (newer.read_bytes(), foreign.read_bytes()) == before


def test_a_migration_that_is_cut_off_is_begun_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "batches.db"
    monkeypatch.setattr(database, "migrations", lambda: (*migrations(), "CREATE TABLE more (x); SELECT nonsense;"))
    with pytest.raises(sqlite3.OperationalError, match="nonsense"):
        open_database(path, max_bytes=MIB, fsync=False)
    monkeypatch.setattr(database, "migrations", lambda: (*migrations(), "CREATE TABLE more (x);"))
    with contextlib.closing(open_database(path, max_bytes=MIB, fsync=False)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone()[0] == len(migrations()) + 1


def test_every_statement_is_sound(tmp_path: Path) -> None:
    with contextlib.closing(open_database(tmp_path / "batches.db", max_bytes=MIB, fsync=False)) as connection:
        for name, sql in statements().items():
            assert sql.endswith(";"), name
            parameters = (None,) * 4 if "?" in sql else dict.fromkeys(_named(sql))
            connection.execute(f"EXPLAIN {sql}", parameters)


def _named(sql: str) -> list[str]:
    return [word.strip(",;)").removeprefix(":") for word in sql.replace("(:", " :").split() if word.startswith(":")]


def test_a_batch_is_found_as_it_was_made_and_forgotten_when_it_expires(tmp_path: Path) -> None:
    header = Header("a", "model", ordered=True, durable=True, labels={"team": "search"})

    async def trial() -> None:
        async with opened(tmp_path / "batches.db") as store:
            shelf = Shelf(store)
            journal = await shelf.make(header, 5.0)
            with pytest.raises(BatchExists):
                await shelf.make(header, 6.0)
            await journal.add(some("0", "1", "2"))
            await journal.finish([done(2)])
        async with opened(tmp_path / "batches.db") as store:
            shelf = Shelf(store)
            (row,) = await shelf.running()
            assert header_of(row) == header
            again = await shelf.journal(row)
            await again.finish([done(0), done(1)])
            assert await told(again) == [(1, 0), (2, 1), (3, 2)]
            await again.end(BatchState.DONE, 7.0, time.time() + 100)
            await shelf.forget_expired()
            assert await shelf.find("a") is not None
            await again.end(BatchState.DONE, 7.0, 8.0)
            await shelf.forget_expired()
            assert await shelf.find("a") is None
            assert await store.do(run_sql("SELECT * FROM items")) == []

    asyncio.run(trial())
