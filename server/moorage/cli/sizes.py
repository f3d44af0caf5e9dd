"""Bytes for people."""

from moorage.cli.terminal import WRONG_USAGE, fail
from moorage.domain.quantities import MAX_BYTES, bytes_in

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


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
    size_bytes = bytes_in(text)
    if size_bytes is None:
        fail(f"{option}: expected a size such as 2GiB, 1.5GB or 1048576, got '{text}'", WRONG_USAGE)
    if size_bytes > MAX_BYTES:
        fail(f"{option}: expected at most {format_bytes(MAX_BYTES)}, got '{text}'", WRONG_USAGE)
    return size_bytes
