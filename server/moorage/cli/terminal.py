"""Where commands print: answers to stdout, complaints to stderr in one line."""

from typing import NoReturn

import typer
from rich.console import Console
from rich.text import Text

FAILED = 1
WRONG_USAGE = 2

_UNWRAPPED_COLUMNS = 100_000


def stdout() -> Console:
    """The console for answers. Where no person reads it, lines are as long as what is in them."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_UNWRAPPED_COLUMNS)


def fail(message: str, exit_code: int = FAILED) -> NoReturn:
    """Say in one line on stderr what went wrong, and end the command."""
    line = Text("error: ", style="bold red").append(" ".join(message.split()), style="not bold default")
    Console(stderr=True, highlight=False).print(line, soft_wrap=True)
    raise typer.Exit(exit_code)
