"""The one table in the file of footprints: its schema, what may stand in it, and how much."""

import math
import sqlite3
from collections.abc import Mapping
from typing import Any, NamedTuple

from moorage.domain.model import Footprint
from moorage.repository.names import MAX_VERSION, is_model_name
from moorage.repository.quantities import MAX_BYTES

SCHEMA_VERSION = 1
MAX_ENTRIES = 10_000
MAX_AGE_S = 90 * 24 * 3600.0

_APPLICATION_ID = 0x4D6F6F72  # "Moor"
_MAX_TEXT = 128
_MEASURES = ("weights_bytes", "load_s", "restore_s", "state_bytes", "uses_per_s")

# Without column types SQLite keeps values as they come; they are checked when they are read.
_SCHEMA = """
CREATE TABLE footprints (
    model, version, device, fingerprint, weights_bytes, load_s, restore_s, state_bytes, uses_per_s, seen_at_s,
    PRIMARY KEY (model, version, device, fingerprint)
)
"""
_READ = """
SELECT model, version, device, fingerprint, weights_bytes, load_s, restore_s, state_bytes, uses_per_s
FROM footprints ORDER BY seen_at_s DESC LIMIT ?
"""
# Several servers may share a file: what one has not measured yet does not erase what another has.
_WRITE = """
INSERT INTO footprints VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (model, version, device, fingerprint) DO UPDATE SET
    weights_bytes = coalesce(excluded.weights_bytes, weights_bytes),
    load_s = coalesce(excluded.load_s, load_s),
    restore_s = coalesce(excluded.restore_s, restore_s),
    state_bytes = coalesce(excluded.state_bytes, state_bytes),
    uses_per_s = excluded.uses_per_s,
    seen_at_s = excluded.seen_at_s
"""
_FORGET_OLD = "DELETE FROM footprints WHERE seen_at_s < ?"
_FORGET_MANY = """
DELETE FROM footprints WHERE rowid IN (SELECT rowid FROM footprints ORDER BY seen_at_s DESC LIMIT -1 OFFSET ?)
"""


class FootprintKey(NamedTuple):
    """What a footprint is of: a version with these files (ModelSpec.fingerprint), on this device."""

    model: str
    version: int
    device: str
    fingerprint: str


class FootprintsRefused(Exception):
    """The file is sound, but not for this server to use, and was left as it is."""


class Damaged(sqlite3.DatabaseError):
    """SQLite's own check found faults in the file."""


def read(connection: sqlite3.Connection) -> tuple[dict[FootprintKey, Footprint], int]:
    """All sound entries, and the number of others. Raises FootprintsRefused, Damaged, sqlite3.Error."""
    connection.execute("BEGIN")  # so that all of this is of one moment
    if not _has_table(connection):
        return {}, 0
    ((verdict,),) = connection.execute("PRAGMA quick_check(1)")
    if verdict != "ok":
        raise Damaged(verdict)
    rows = connection.execute(_READ, (MAX_ENTRIES,)).fetchall()
    entries = ((FootprintKey(*row[:4]), Footprint(**dict(zip(_MEASURES, row[4:], strict=True)))) for row in rows)
    found = {key: footprint for key, footprint in entries if _is_sound(key, footprint)}
    return found, len(rows) - len(found)


def write(connection: sqlite3.Connection, items: Mapping[FootprintKey, Footprint], now_s: float) -> None:
    """Put in the sound ones of these, and keep the table within its bounds, as one transaction.

    now_s: seconds since 1970. Raises FootprintsRefused, sqlite3.Error.
    """
    rows = [
        (*key, *(getattr(footprint, measure) for measure in _MEASURES), now_s)
        for key, footprint in items.items()
        if _is_sound(key, footprint)
    ]
    connection.execute("BEGIN IMMEDIATE")
    if not _has_table(connection):
        _create(connection)
    connection.executemany(_WRITE, rows)
    connection.execute(_FORGET_OLD, (now_s - MAX_AGE_S,))
    connection.execute(_FORGET_MANY, (MAX_ENTRIES,))
    connection.execute("COMMIT")


def _has_table(connection: sqlite3.Connection) -> bool:
    """False for an empty file. Raises FootprintsRefused where the file is another program's or too new."""
    application_id, schema = _pragma(connection, "application_id"), _pragma(connection, "user_version")
    if application_id == schema == 0 and _pragma(connection, "schema_version") == 0:
        return False
    if application_id != _APPLICATION_ID or schema < 1:
        raise FootprintsRefused("expected a file of footprints, got another program's database")
    if schema != SCHEMA_VERSION:
        raise FootprintsRefused(f"expected footprints of schema {SCHEMA_VERSION}, got {schema}, of a newer Moorage")
    return True


def _create(connection: sqlite3.Connection) -> None:
    connection.execute(_SCHEMA)
    connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    ((value,),) = connection.execute(f"PRAGMA {name}")
    return int(value)


def _is_sound(key: FootprintKey, footprint: Footprint) -> bool:
    return _is_key(key) and all(
        (
            _is_bytes(footprint.weights_bytes),
            _is_bytes(footprint.state_bytes),
            footprint.load_s is None or _is_number(footprint.load_s),
            footprint.restore_s is None or _is_number(footprint.restore_s),
            _is_number(footprint.uses_per_s),
        )
    )


def _is_key(key: FootprintKey) -> bool:
    model, version, *texts = key
    if not all(isinstance(text, str) and text.isascii() and len(text) <= _MAX_TEXT for text in (model, *texts)):
        return False
    return is_model_name(model) and isinstance(version, int) and 1 <= version <= MAX_VERSION


def _is_bytes(value: Any) -> bool:
    return value is None or (isinstance(value, int) and 0 <= value <= MAX_BYTES)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value) and value >= 0
