"""Who holds memory of a device."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Holder:
    """owner: a model (name/version), a worker process or a hold. kind: what for ("context", "weights", "workspace",
    "state", "held"). priority: of its model or hold; 0 for a worker, and where the server did not say.
    """

    owner: str
    kind: str
    size_bytes: int
    priority: int = 0


def parse_holders(text: str) -> tuple[Holder, ...]:
    """Of "OWNER KIND BYTES, …", as errors carry it. Entries that are not of that form are left out."""
    parts = (entry.split() for entry in text.split(","))
    return tuple(Holder(part[0], part[1], int(part[2])) for part in parts if _is_holder(part))


def _is_holder(part: list[str]) -> bool:
    return len(part) == 3 and part[2].isascii() and part[2].isdigit()
