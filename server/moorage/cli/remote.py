"""A server that a command talks to."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from moorage.cli.sizes import format_bytes
from moorage.cli.terminal import fail

if TYPE_CHECKING:
    from moorage_client import MoorageClientError, SyncClient

DEFAULT_TARGET = "127.0.0.1:8001"

Target = Annotated[
    str, typer.Option("--target", metavar="HOST:PORT", envvar="MOORAGE_TARGET", help="The server to talk to.")
]

AsJson = Annotated[bool, typer.Option("--json", help="For machines: JSON, sizes in bytes.")]
ModelVersion = Annotated[str, typer.Option("--model-version", metavar="N", help="By default the latest.")]
Priority = Annotated[
    int, typer.Option("--priority", min=0, max=5, help="1 is the highest, 5 the lowest; 0 leaves it to the server.")
]

# How gRPC begins where it never reached a server. It marks these by nothing else: code and metadata are as of a status.
_NO_CONNECTION = ("failed to connect", "errors resolving", "DNS resolution failed", "Name resolution")


def above_zero(seconds: float | None) -> float | None:
    """An option's callback: no time at all could only fail, and is likely meant as no limit."""
    if seconds is not None and not 0 < seconds < math.inf:
        raise typer.BadParameter(f"expected seconds above 0, got {seconds:g}")
    return seconds


@contextmanager
def connected(target: str) -> "Iterator[SyncClient]":
    """A client of the server at `target`. An error of a call ends the command, with one line that tells it."""
    from moorage_client import MoorageClientError, SyncClient, Unavailable

    with SyncClient(target) as client:
        try:
            yield client
        except MoorageClientError as error:
            if isinstance(error, Unavailable) and error.message.startswith(_NO_CONNECTION):
                fail(f"no connection to {target}: {error.message}")
            fail(f"{error.code}: {error.message}{_holders_text(error)}")


def _holders_text(error: "MoorageClientError") -> str:
    """Who holds the memory that was not free, as far as the server said."""
    held = [f"{holder.owner} {format_bytes(holder.size_bytes)} {holder.kind}" for holder in error.held_by]
    return f"; held by {', '.join(held)}" if held else ""
