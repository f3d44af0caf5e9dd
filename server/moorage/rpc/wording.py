"""How values that a client sent appear in messages: escaped, and never longer than a line."""

from collections.abc import Collection, Sequence
from itertools import islice

from moorage.repository.quoting import shown as quote

__all__ = ["quote", "quote_all", "shape_text"]

_MAX_ITEMS = 8


def quote_all(names: Collection[str]) -> str:
    """At most eight names, quoted."""
    more = f" and {len(names) - _MAX_ITEMS} more" if len(names) > _MAX_ITEMS else ""
    return (", ".join(quote(name) for name in islice(names, _MAX_ITEMS)) or "none") + more


def shape_text(shape: Sequence[int]) -> str:
    """A shape in brackets; of a long one the first eight dimensions and their number."""
    shown = ",".join(str(size) for size in shape[:_MAX_ITEMS])
    return f"[{shown}]" if len(shape) <= _MAX_ITEMS else f"[{shown},...] ({len(shape)} dimensions)"
