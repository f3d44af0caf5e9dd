"""From pydantic's errors to lines that a person can act on; the one place for model.toml and moorage.toml.

It lives in this room because both readers may reach it here: `config` stands above `repository` in the layers,
while `domain`, the only room below both, may not import pydantic.

A field's `description` says what is expected of it. A ValueError raised by a validator carries the finished text:
"expected …, got …" from a field's, whole lines with their key paths from a model's.
"""

import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from moorage.repository.quoting import shown

Location = tuple[int | str, ...]

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]{1,80}")
_LEAST_LIKENESS = 0.65  # of a misspelling; below it words that merely share some letters were suggested


class Problem(NamedTuple):
    """One line, and the key it is about (empty where it is about several)."""

    location: Location
    text: str


def problems_in(error: ValidationError, model: type[BaseModel]) -> tuple[Problem, ...]:
    """Every problem that pydantic found in an instance of `model`."""
    return tuple(problem for details in error.errors(include_url=False) for problem in _problems(details, model))


def unknown_key(key: str, known: Iterable[str]) -> str:
    """The line for a key that does not exist: names the nearest one, or all of them where none is near."""
    candidates = sorted(known)
    near = difflib.get_close_matches(key, candidates, n=1, cutoff=_LEAST_LIKENESS)
    hint = f"did you mean '{near[0]}'?" if near else f"expected one of {', '.join(candidates)}"
    return f"unknown key {shown(key)}, {hint}"


def key_path(location: Location) -> str:
    """A location as a TOML key, list positions in brackets: inputs[0].shape."""
    path = ""
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else f".{_key(part)}"
    return path.removeprefix(".")


def known_keys(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """The fields of a table by the key that a file uses."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _problems(details: ErrorDetails, model: type[BaseModel]) -> Iterator[Problem]:
    # pydantic marks a mapping's bad key with an extra part, "[key]", which no file contains.
    location = tuple(part for part in details["loc"] if part != "[key]")
    path = key_path(location)
    if details["type"] == "extra_forbidden":
        yield Problem(location, _unknown_at(location, model))
    elif details["type"] == "value_error":
        for line in str(details["ctx"]["error"]).splitlines():
            yield Problem(location, f"{path}: {line}" if path else line)
    else:
        got = "nothing" if details["type"] == "missing" else shown(details["input"])
        yield Problem(location, f"{path}: expected {_expected(details, model, location)}, got {got}")


def _unknown_at(location: Location, model: type[BaseModel]) -> str:
    table = _table_at(model, location[:-1])
    prefix = key_path(location[:-1])
    known = known_keys(table) if table else {}
    line = unknown_key(str(location[-1]), known)
    return f"{prefix}: {line}" if prefix else line


def _expected(details: ErrorDetails, model: type[BaseModel], location: Location) -> str:
    fields = list(_fields_along(model, location))
    description = fields[-1].description if fields else None
    return description or details["msg"]


def _table_at(model: type[BaseModel], location: Location) -> type[BaseModel] | None:
    fields = list(_fields_along(model, location))
    return _table_in(fields[-1].annotation) if fields else model


def _fields_along(model: type[BaseModel], location: Location) -> Iterator[FieldInfo]:
    """The fields passed on the way to a location; list positions and the keys of free tables are no fields."""
    table: type[BaseModel] | None = model
    parts = iter(location)
    for part in parts:
        field = known_keys(table).get(str(part)) if table else None
        if field is None:
            continue
        yield field
        if get_origin(field.annotation) is Mapping or field.annotation is dict:
            next(parts, None)
        table = _table_in(field.annotation)


def _table_in(annotation: object) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((table for inner in get_args(annotation) if (table := _table_in(inner))), None)


def _key(part: str) -> str:
    return part if _BARE_KEY.fullmatch(part) else json.dumps(part[:80])
