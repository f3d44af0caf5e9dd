"""The SQL of the store: named statements, and the numbered migrations that make its schema."""

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType

_ROOM = "moorage.batches"
_NAME = re.compile(r"^-- ([a-z_]+)$", re.MULTILINE)
_MIGRATION = re.compile(r"^(\d{4})_[a-z0-9_]+\.sql$")


@cache
def statements() -> Mapping[str, str]:
    """Name to SQL, of queries.sql."""
    parts = _NAME.split(files(_ROOM).joinpath("queries.sql").read_text(encoding="utf-8"))[1:]
    return MappingProxyType({name: sql.strip() for name, sql in zip(parts[::2], parts[1::2], strict=True)})


@cache
def migrations() -> tuple[str, ...]:
    """Scripts from an empty file to the newest schema, in order. The version of a schema is how many made it."""
    folder = files(_ROOM).joinpath("migrations")
    found = sorted((match[1], entry) for entry in folder.iterdir() if (match := _MIGRATION.match(entry.name)))
    assert [int(number) for number, _ in found] == list(range(1, len(found) + 1)), "numbered from 1, without a gap"
    return tuple(entry.read_text(encoding="utf-8") for _, entry in found)
