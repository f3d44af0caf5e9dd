"""Bytes as people write them, wherever they do: in a file, in a variable, on the command line."""

import re

_QUANTITY = re.compile(r"\s*([0-9]{1,16}(?:\.[0-9]{1,16})?)\s*([A-Za-z]*)\s*", re.ASCII)
_UNIT_BYTES = {"": 1, "b": 1}
_UNIT_BYTES |= {f"{prefix}b": 1000**power for power, prefix in enumerate("kmgt", start=1)}
_UNIT_BYTES |= {f"{prefix}ib": 1024**power for power, prefix in enumerate("kmgt", start=1)}

MAX_BYTES = 2**53  # exact as a float, and more than any machine has
EXPECTED_BYTES = 'bytes such as "90 MiB", "1.5 GB" or 1048576'


def bytes_in(text: str) -> int | None:
    """The bytes of a number with or without a unit (B, KB…TB, KiB…TiB; case does not matter), rounded down.

    None where the text is none. Not bounded.
    """
    match = _QUANTITY.fullmatch(text)
    unit_bytes = _UNIT_BYTES.get(match[2].lower()) if match else None
    if match is None or unit_bytes is None:
        return None
    whole, _, fraction = match[1].partition(".")
    return int(whole) * unit_bytes + (int(fraction) * unit_bytes // 10 ** len(fraction) if fraction else 0)
