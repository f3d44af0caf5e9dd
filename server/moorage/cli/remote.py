"""A server that a command talks to."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from moorage.cli.terminal import fail

if TYPE_CHECKING:
    from moorage_client import SyncClient

DEFAULT_TARGET = "127.0.0.1:8001"

Target = Annotated[
    str, typer.Option("--target", metavar="HOST:PORT", envvar="MOORAGE_TARGET", help="The server to talk to.")
]


@contextmanager
def connected(target: str) -> "Iterator[SyncClient]":
    """A client of the server at `target`. An error of a call ends the command, with one line that tells it."""
    from moorage_client import MoorageClientError, SyncClient, Unavailable

    with SyncClient(target) as client:
        try:
            yield client
        except Unavailable as error:
            fail(f"{target}: {error.message}")
        except MoorageClientError as error:
            fail(f"{error.code}: {error.message}")
