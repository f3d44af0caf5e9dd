"""Bytes for people."""

import re

from moorage.cli.terminal import WRONG_USAGE, fail

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_SIZE = re.compile(r"\s*([0-9]{1,16}(?:\.[0-9]{1,16})?)\s*(?:([KMGT]i?)?B)?\s*", re.ASCII | re.IGNORECASE)


def format_bytes(size_bytes: int) -> str:
    """Such as "0 B", "1.5 KiB" or "2 GiB": at most one decimal, in the largest unit that it fills."""
    size, exponent = float(size_bytes), 0
    # 1023.95 would be printed as 1024.0: it belongs to the next unit already.
    while size >= 1023.95 and exponent < len(_UNITS) - 1:
        size /= 1024
        exponent += 1
    return f"{round(size, 1):g} {_UNITS[exponent]}"


def parse_size(option: str, text: str) -> int:
    """Bytes of "2 GiB", "1.5GB" or "1048576", as in model.toml. Anything else ends the command, naming the option."""
    match = _SIZE.fullmatch(text)
    if match is None:
        fail(f"{option}: expected a size such as 2GiB, 1.5GB or 1048576, got '{text}'", WRONG_USAGE)
    prefix = (match[2] or "").lower()
    unit_bytes: int = (1024 if prefix.endswith("i") else 1000) ** " kmgt".index(prefix[:1] or " ")
    whole, _, fraction = match[1].partition(".")
    return int(whole) * unit_bytes + (int(fraction) * unit_bytes // 10 ** len(fraction) if fraction else 0)
