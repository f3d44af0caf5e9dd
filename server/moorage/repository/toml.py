"""TOML files to plain values, with errors that say where."""

import re
import tomllib
from typing import Any

_POSITION = re.compile(r"(.*) \(at (line [0-9]+, column [0-9]+)\)", re.DOTALL)


class TomlError(ValueError):
    """Not TOML; the message begins with line and column. It holds no path."""


def parse_toml(content: bytes) -> dict[str, Any]:
    """The tables of a TOML file.

    Raises TomlError.
    """
    try:
        return tomllib.loads(content.decode())
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise TomlError(f"line {line}: expected UTF-8 text, got byte 0x{content[error.start]:02x}") from None
    except tomllib.TOMLDecodeError as error:
        raise TomlError(_positioned(str(error), content)) from None
    except (ValueError, RecursionError) as error:  # an int of thousands of digits; arrays nested beyond measure
        raise TomlError(f"not readable as TOML: {error}") from None


def _positioned(message: str, content: bytes) -> str:
    match = _POSITION.fullmatch(message)
    if match:
        return f"{match[2]}: {match[1]}"
    last_line = content.rstrip(b"\n").count(b"\n") + 1
    return f"line {last_line}: {message}"
