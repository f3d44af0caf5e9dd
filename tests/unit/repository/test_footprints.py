"""The file of footprints: what comes back, what is forgotten, and what becomes of a file that is no good."""

import logging
import math
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from moorage.domain.model import Footprint
from moorage.repository.footprint_table import MAX_AGE_S, MAX_ENTRIES, SCHEMA_VERSION
from moorage.repository.footprints import CORRUPT_SUFFIX, FootprintKey, FootprintsRefused, FootprintStore

KEY = FootprintKey("embedder", 1, "cuda:0", "f" * 64)
WHOLE = Footprint(weights_bytes=90_000_000, load_s=1.25, restore_s=0.03, state_bytes=4096, uses_per_s=7.5)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "footprints.sqlite3"


def _key(number: int) -> FootprintKey:
    return FootprintKey(f"m{number}", 1, "cpu", "f")


def _execute(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def test_what_was_saved_comes_back(path: Path) -> None:
    assert FootprintStore(path).load_all() == {}
    assert not path.parent.exists()
    items = {KEY: WHOLE, KEY._replace(device="cpu"): Footprint(), KEY._replace(version=2): Footprint(weights_bytes=0)}
    FootprintStore(path).save(items)
    assert FootprintStore(path).load_all() == items
    assert sorted(os.listdir(path.parent)) == [path.name]


def test_a_later_save_wins_and_what_it_has_not_measured_stays(path: Path) -> None:
    store = FootprintStore(path)
    store.save({KEY: WHOLE})
    store.save({KEY: Footprint(load_s=2.5, uses_per_s=1.0)})
    expected = Footprint(weights_bytes=90_000_000, load_s=2.5, restore_s=0.03, state_bytes=4096, uses_per_s=1.0)
    assert store.load_all() == {KEY: expected}


def test_what_was_not_saved_for_ninety_days_is_forgotten(path: Path) -> None:
    now_s = 1_700_000_000.0
    store = FootprintStore(path, wall_clock=lambda: now_s)
    store.save({_key(1): WHOLE, _key(2): WHOLE})
    now_s += MAX_AGE_S / 2
    store.save({_key(2): WHOLE})
    now_s += MAX_AGE_S / 2
    store.save({})
    assert set(store.load_all()) == {_key(1), _key(2)}
    now_s += 1.0
    store.save({})
    assert set(store.load_all()) == {_key(2)}


def test_of_too_many_the_latest_stay(path: Path) -> None:
    now_s = 1_700_000_000.0
    store = FootprintStore(path, wall_clock=lambda: now_s)
    store.save({_key(number): Footprint() for number in range(MAX_ENTRIES)})
    now_s += 1.0
    store.save({_key(number): Footprint() for number in range(MAX_ENTRIES - 1, MAX_ENTRIES + 2)})
    loaded = set(store.load_all())
    assert len(loaded) == MAX_ENTRIES
    assert {_key(number) for number in range(MAX_ENTRIES - 1, MAX_ENTRIES + 2)} < loaded


@pytest.mark.parametrize(
    "change",
    [
        "weights_bytes = -1",
        "weights_bytes = 1.5",
        "weights_bytes = 9007199254740993",
        "state_bytes = 'much'",
        "load_s = 9e999",
        "restore_s = -0.1",
        "uses_per_s = NULL",
        "model = '../m1'",
        "version = 0",
        "version = '1'",
        "device = NULL",
        "fingerprint = x'ff'",
        "device = CAST(x'ff' AS TEXT)",
        "device = 7",
    ],
)
def test_a_row_that_cannot_be_true_is_left_out(path: Path, change: str, caplog: pytest.LogCaptureFixture) -> None:
    store = FootprintStore(path)
    store.save({_key(1): WHOLE, _key(2): WHOLE})
    _execute(path, f"UPDATE footprints SET {change} WHERE model = 'm1'")
    assert store.load_all() == {_key(2): WHOLE}
    assert "1 entries make no sense" in caplog.text


@pytest.mark.parametrize(
    "footprint", [Footprint(weights_bytes=-1), Footprint(load_s=math.inf), Footprint(uses_per_s=math.nan)]
)
def test_what_cannot_be_true_is_not_saved(path: Path, footprint: Footprint) -> None:
    store = FootprintStore(path)
    store.save({_key(1): footprint, _key(2): WHOLE})
    assert store.load_all() == {_key(2): WHOLE}


def _no_database(path: Path) -> None:
    path.write_bytes(b"these are no footprints\n" * 100)


def _cut_short(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _overwritten(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xa5" * 4096)


def _index_overwritten(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        ((page,),) = connection.execute("SELECT rootpage FROM sqlite_master WHERE type = 'index'").fetchall()
    with path.open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(b"\xa5" * 4096)


@pytest.mark.parametrize("damage", [_no_database, _cut_short, _overwritten, _index_overwritten])
@pytest.mark.parametrize("first", ["load_all", "save"])
def test_a_damaged_file_is_moved_aside(
    path: Path, damage: Callable[[Path], None], first: str, caplog: pytest.LogCaptureFixture
) -> None:
    FootprintStore(path).save({_key(number): WHOLE for number in range(500)})
    damage(path)
    damaged = path.read_bytes()
    store = FootprintStore(path)
    if first == "load_all":
        assert store.load_all() == {}
    store.save({KEY: WHOLE})
    assert store.load_all() == {KEY: WHOLE}
    assert Path(f"{path}{CORRUPT_SUFFIX}").read_bytes() == damaged
    (record,) = caplog.records
    assert f"moved to {path}{CORRUPT_SUFFIX}" in record.getMessage()


def test_what_is_left_beside_a_damaged_file_goes_with_it(path: Path) -> None:
    path.parent.mkdir()
    _no_database(path)
    Path(f"{path}-journal").write_bytes(b"\0a journal that is over")
    assert FootprintStore(path).load_all() == {}
    names = {f"{path.name}{CORRUPT_SUFFIX}", f"{path.name}{CORRUPT_SUFFIX}-journal"}
    assert set(os.listdir(path.parent)) == names


@pytest.mark.parametrize(
    ("statements", "reason"),
    [
        (
            (f"PRAGMA user_version = {SCHEMA_VERSION + 1}",),
            "expected footprints of schema 1, got 2, of a newer Moorage",
        ),
        (("PRAGMA application_id = 7",), "expected a file of footprints, got another program's database"),
        (("PRAGMA application_id = 0", "PRAGMA user_version = 0"), "got another program's database"),
    ],
)
def test_a_file_of_others_is_refused_and_left_alone(path: Path, statements: tuple[str, ...], reason: str) -> None:
    store = FootprintStore(path)
    store.save({KEY: WHOLE})
    _execute(path, *statements)
    before = path.read_bytes()
    with pytest.raises(FootprintsRefused, match=reason) as caught:
        store.load_all()
    assert str(caught.value).startswith(f"{path}: ")
    with pytest.raises(FootprintsRefused, match=reason):
        store.save({KEY: Footprint()})
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


def _a_file_above(path: Path) -> None:
    path.parent.touch()


def _a_folder(path: Path) -> None:
    path.mkdir(parents=True)


def _a_pipe(path: Path) -> None:
    path.parent.mkdir()
    os.mkfifo(path)


@pytest.mark.parametrize("obstruct", [_a_file_above, _a_folder, _a_pipe])
def test_a_place_of_no_use_is_told_once(
    path: Path, obstruct: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    obstruct(path)
    before = sorted(path.parent.parent.rglob("*"))
    store = FootprintStore(path)
    assert store.load_all() == {}
    for _ in range(3):
        store.save({KEY: WHOLE})
    (record,) = caplog.records
    assert sorted(path.parent.parent.rglob("*")) == before
    assert record.levelno == logging.WARNING
    assert "is not remembered" in record.getMessage()


def test_a_place_that_becomes_usable_is_used(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    _a_file_above(path)
    store = FootprintStore(path)
    store.save({KEY: WHOLE})
    path.parent.unlink()
    store.save({KEY: WHOLE})
    assert store.load_all() == {KEY: WHOLE}
    assert len(caplog.records) == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_can_be_read(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = FootprintStore(path)
    store.save({KEY: WHOLE})
    path.parent.chmod(0o500)
    try:
        assert store.load_all() == {KEY: WHOLE}
        assert not caplog.records
        for _ in range(3):
            store.save({KEY: Footprint(load_s=9.0)})
        assert store.load_all() == {KEY: WHOLE}
    finally:
        path.parent.chmod(0o700)
    (record,) = caplog.records
    assert "is not remembered" in record.getMessage()
