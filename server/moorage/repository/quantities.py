"""Bytes as people write them, for model.toml, moorage.toml and the command line."""

import re
from typing import Annotated

from pydantic import BeforeValidator

from moorage.repository.quoting import shown

MAX_BYTES = 2**53  # exact as a float, and more than any machine has
EXPECTED_BYTES = 'bytes such as "90 MiB", "1.5 GB" or 1048576'

_QUANTITY = re.compile(r"\s*([0-9]{1,16}(?:\.[0-9]{1,16})?)\s*([A-Za-z]*)\s*", re.ASCII)
_UNIT_BYTES = {"": 1, "b": 1}
_UNIT_BYTES |= {f"{prefix}b": 1000**power for power, prefix in enumerate("kmgt", start=1)}
_UNIT_BYTES |= {f"{prefix}ib": 1024**power for power, prefix in enumerate("kmgt", start=1)}


def parse_bytes(value: object) -> int:
    """A number of bytes from a plain number or from text with a unit (B, KB…TB, KiB…TiB; case does not matter).

    Stricter than pydantic's ByteSize, which reads "1,5 GiB" as one byte.
    Raises ValueError, saying what was expected and what came.
    """
    parsed = _from_text(value) if isinstance(value, str) else value
    if isinstance(parsed, bool) or not isinstance(parsed, int) or not 0 <= parsed <= MAX_BYTES:
        raise ValueError(f"expected {EXPECTED_BYTES}, got {shown(value)}")
    return parsed


def _from_text(text: str) -> int | None:
    match = _QUANTITY.fullmatch(text)
    unit_bytes = _UNIT_BYTES.get(match[2].lower()) if match else None
    if match is None or unit_bytes is None:
        return None
    whole, _, fraction = match[1].partition(".")
    return int(whole) * unit_bytes + (int(fraction) * unit_bytes // 10 ** len(fraction) if fraction else 0)


Bytes = Annotated[int, BeforeValidator(parse_bytes)]
