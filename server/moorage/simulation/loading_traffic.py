"""The [[arrivals]] of a scenario file."""

from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from moorage.simulation.reading import NAME, TEXT, Kind, Table, list_of, number, one_of, whole
from moorage.simulation.recorded import read_trace
from moorage.simulation.scenario import Bursts, ClosedLoop, Pattern, Poisson, Popularity, Stream

T = TypeVar("T", int, float)

_ABOVE_ZERO = number(above=True)
_PRIORITY = whole(1, 5)
_PRIORITY_MIX = "a whole number from 1 to 5, or a table from those to shares"


def read_stream(table: Table, folder: Path) -> Stream:
    """One stream. Raises ScenarioError."""
    least_rows, most_rows = _span(table, "rows", whole(1), "a whole number", 1)
    stream = Stream(
        pattern=_pattern(table, folder),
        models=table.take("models", list_of(NAME), ()),
        popularity=_popularity(table.table("popularity")),
        priorities=_priorities(table),
        least_rows=least_rows,
        most_rows=most_rows,
        deadline_s=table.take("deadline_s", _ABOVE_ZERO, 30.0),
    )
    table.close()
    return stream


def _pattern(table: Table, folder: Path) -> Pattern:
    match table.take("pattern", one_of("poisson", "bursts", "closed_loop", "trace")):
        case "poisson":
            return Poisson(table.take("rate_per_s", _ABOVE_ZERO))
        case "bursts":
            return Bursts(
                on_s=table.take("on_s", _ABOVE_ZERO),
                off_s=table.take("off_s", _ABOVE_ZERO),
                on_rate_per_s=table.take("on_rate_per_s", _ABOVE_ZERO),
                off_rate_per_s=table.take("off_rate_per_s", number(), 0.0),
            )
        case "closed_loop":
            clients = table.take("clients", whole(1, 100_000))
            return ClosedLoop(clients, *_span(table, "think_s", _ABOVE_ZERO, "seconds above 0"))
        case _:
            return read_trace(folder / table.take("file", TEXT))


def _popularity(table: Table) -> Popularity:
    popularity = Popularity(
        zipf=table.take("zipf", number(most=10), 0.0),
        shift_every_requests=table.take("shift_every_requests", whole(1), 0) or None,
        shift_every_s=table.take("shift_every_s", _ABOVE_ZERO, 0.0) or None,
        shift_share=table.take("shift_share", number(above=True, most=1), 1.0),
    )
    table.close()
    if popularity.shift_every_requests and popularity.shift_every_s:
        raise table.wrong("shift_every_s", "either this or shift_every_requests")
    return popularity


def _priorities(table: Table) -> Mapping[int, float]:
    """priority = 2, or { 1 = 0.1, 3 = 0.9 }; the model's own where there is none."""
    if not isinstance(table.peek("priority"), dict):
        return {table.take("priority", _PRIORITY, 0): 1.0}
    mix = table.table("priority")
    shares = {int(key): mix.take(key, _ABOVE_ZERO) for key in "12345" if key in mix.keys}
    if not shares or len(shares) < len(mix.keys):
        raise table.wrong("priority", _PRIORITY_MIX)
    return shares


def _span(table: Table, key: str, kind: Kind[T], expected: str, *default: T) -> tuple[T, T]:
    """key = 3, or [1, 8] for anything between. Without a default the key is required."""
    if not isinstance(table.peek(key), list):
        value = table.take(key, kind, *default)
        return value, value
    bounds = table.take(key, list_of(kind))
    if len(bounds) != 2 or bounds[0] > bounds[1]:
        raise table.wrong(key, f"{expected}, or [least, most]")
    return bounds[0], bounds[1]
