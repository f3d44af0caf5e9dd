"""Bytes as people write them, for model.toml, moorage.toml and the command line."""

from typing import Annotated

from pydantic import BeforeValidator

from moorage.domain.quantities import EXPECTED_BYTES, MAX_BYTES, bytes_in
from moorage.repository.quoting import shown

__all__ = ["EXPECTED_BYTES", "MAX_BYTES", "Bytes", "parse_bytes"]


def parse_bytes(value: object) -> int:
    """A number of bytes from a plain number or from text with a unit (B, KB…TB, KiB…TiB; case does not matter).

    Stricter than pydantic's ByteSize, which reads "1,5 GiB" as one byte.
    Raises ValueError, saying what was expected and what came.
    """
    parsed = bytes_in(value) if isinstance(value, str) else value
    if isinstance(parsed, bool) or not isinstance(parsed, int) or not 0 <= parsed <= MAX_BYTES:
        raise ValueError(f"expected {EXPECTED_BYTES}, got {shown(value)}")
    return parsed


Bytes = Annotated[int, BeforeValidator(parse_bytes)]
