"""Tables of a scenario file, read key by key; a wrong or unknown key is an error that names it.

Made by hand rather than with pydantic, so that `moorage simulate` works in the light install.
"""

import difflib
import math
import re
import reprlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from moorage.domain.quantities import EXPECTED_BYTES, MAX_BYTES, bytes_in

T = TypeVar("T")


class ScenarioError(ValueError):
    """The scenario is wrong, and nothing was simulated. The message names the key, what was expected, and what came."""


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """What a value has to be. parse: None where it is not."""

    expected: str
    parse: Callable[[object], T | None]


class _Missing:
    """Stands for "this key has no default"."""


_MISSING: Final = _Missing()


class Table:
    """One table of the file. `close` has to be called once every known key was taken."""

    def __init__(self, values: Mapping[str, object], path: str = "") -> None:
        self._values = values
        self._path = path
        self._known: list[str] = []

    def take(self, key: str, kind: Kind[T], default: T | _Missing = _MISSING) -> T:
        """A value of that kind. Raises ScenarioError."""
        self._known.append(key)
        if key not in self._values:
            if isinstance(default, _Missing):
                raise ScenarioError(f"{self.path_of(key)}: expected {kind.expected}, got nothing")
            return default
        value = self._values[key]
        parsed = kind.parse(value)
        if parsed is None:
            raise self.wrong(key, kind.expected)
        return parsed

    def peek(self, key: str) -> object:
        """A value as it stands in the file, to tell which kind it is meant to be; None where there is none."""
        return self._values.get(key)

    def table(self, key: str) -> "Table":
        """A table inside this one; an empty one where there is none."""
        return Table(self.take(key, TABLE, {}), self.path_of(key))

    def tables(self, key: str) -> list["Table"]:
        """An array of tables, [[key]] in the file: one at least."""
        values = self.take(key, TABLES)
        return [Table(value, f"{self.path_of(key)}[{index}]") for index, value in enumerate(values)]

    def wrong(self, key: str, expected: str) -> ScenarioError:
        return ScenarioError(f"{self.path_of(key)}: expected {expected}, got {shown(self._values.get(key))}")

    def path_of(self, key: str) -> str:
        return f"{self._path}.{key}" if self._path else key

    @property
    def keys(self) -> list[str]:
        return list(self._values)

    def close(self) -> None:
        """Raises ScenarioError for a key that nobody took."""
        for key in self._values:
            if key not in self._known:
                near = difflib.get_close_matches(key, self._known, n=1, cutoff=0.65)
                hint = f"did you mean '{near[0]}'?" if near else f"expected one of {', '.join(sorted(self._known))}"
                at = f"{self._path}: " if self._path else ""
                raise ScenarioError(f"{at}unknown key {shown(key)}, {hint}")


def whole(least: int, most: int = 10**9) -> Kind[int]:
    """A whole number within bounds."""

    def parse(value: object) -> int | None:
        fits = isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
        return value if fits and isinstance(value, int) else None

    return Kind(f"a whole number from {least} to {most}", parse)


def number(least: float = 0.0, *, above: bool = False, most: float = 1e12) -> Kind[float]:
    """A finite number from `least`, or above it, to `most`."""

    def parse(value: object) -> float | None:
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            return None
        return float(value) if (least < value if above else least <= value) and value <= most else None

    return Kind(f"a number {'above' if above else 'from'} {least:g}", parse)


def one_of(*choices: str) -> Kind[str]:
    return Kind(
        f"one of {', '.join(choices)}", lambda value: value if isinstance(value, str) and value in choices else None
    )


def list_of(kind: Kind[T]) -> Kind[tuple[T, ...]]:
    """A list with at least one member, each of that kind."""

    def parse(value: object) -> tuple[T, ...] | None:
        if not isinstance(value, list) or not value:
            return None
        members = [kind.parse(member) for member in value]
        return None if None in members else tuple(member for member in members if member is not None)

    return Kind(f"a list, each {kind.expected}", parse)


def shown(value: object) -> str:
    """A foreign value in ASCII, cut where it is long."""
    return reprlib.repr(value).encode("ascii", "backslashreplace").decode("ascii")


def _size(value: object) -> int | None:
    value = bytes_in(value) if isinstance(value, str) else value
    fits = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_BYTES
    return value if fits and isinstance(value, int) else None


def _name(value: object) -> str | None:
    return value if isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,80}", value) else None


def _tables(value: object) -> list[Mapping[str, object]] | None:
    if not isinstance(value, list) or not value or not all(isinstance(member, dict) for member in value):
        return None
    return value


SIZE: Kind[int] = Kind(EXPECTED_BYTES, _size)
POSITIVE_SIZE: Kind[int] = Kind(f"{SIZE.expected}, above 0", lambda value: _size(value) or None)
NAME: Kind[str] = Kind("a name of letters, digits, '_', '.', ':' and '-'", _name)
TEXT: Kind[str] = Kind("text", lambda value: value if isinstance(value, str) else None)
TABLE: Kind[Mapping[str, object]] = Kind("a table", lambda value: value if isinstance(value, dict) else None)
TABLES: Kind[list[Mapping[str, object]]] = Kind("an array of tables, at least one", _tables)
