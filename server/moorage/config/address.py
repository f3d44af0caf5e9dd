"""Addresses to listen on."""

import re
from typing import NamedTuple

from moorage.repository.quoting import shown

EXPECTED_ADDRESS = 'an address "host:port" such as "127.0.0.1:8001" or "[::1]:8001", port 0 for any free one'

_ADDRESS = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.%a-z]+)\]|(?P<host>[A-Za-z0-9._-]+)):(?P<port>[0-9]{1,5})", re.ASCII)


class Address(NamedTuple):
    """A host, without brackets, and a TCP port. Its text is what gRPC takes."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(value: object) -> Address:
    """The address that a text "host:port" names.

    Raises ValueError, saying what was expected and what came.
    """
    if isinstance(value, Address):
        return value
    match = _ADDRESS.fullmatch(value) if isinstance(value, str) else None
    if match is None or int(match["port"]) > 65535:
        raise ValueError(f"expected {EXPECTED_ADDRESS}, got {shown(value)}")
    return Address(match["v6"] or match["host"], int(match["port"]))


def parse_optional_address(value: object) -> Address | None:
    """The same, and None for "off".

    Raises ValueError, saying what was expected and what came.
    """
    if value is None or value == "off":
        return None
    try:
        return parse_address(value)
    except ValueError:
        raise ValueError(f'expected {EXPECTED_ADDRESS}, or "off", got {shown(value)}') from None
