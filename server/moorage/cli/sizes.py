"""Bytes for people."""

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def format_bytes(size_bytes: int) -> str:
    """Such as "0 B", "1.5 KiB" or "2 GiB": at most one decimal, in the largest unit that it fills."""
    size, exponent = float(size_bytes), 0
    # 1023.95 would be printed as 1024.0: it belongs to the next unit already.
    while size >= 1023.95 and exponent < len(_UNITS) - 1:
        size /= 1024
        exponent += 1
    return f"{round(size, 1):g} {_UNITS[exponent]}"
