"""`moorage models`: what a server has; load and unload."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from moorage.cli.remote import DEFAULT_TARGET, Target, above_zero, connected
from moorage.cli.sizes import format_bytes
from moorage.cli.terminal import stdout

if TYPE_CHECKING:
    from rich.table import Table

    from moorage_client import ModelInfo

# Of a reason, in a pipe: there is no width to fold it to, and a line should stay one. --json has all of it.
_PIPED_REASON_COLUMNS = 60

commands = typer.Typer(help="List a server's models; load or unload one.", invoke_without_command=True)

ModelName = Annotated[str, typer.Argument(metavar="MODEL", help="The model's name.")]
Timeout = Annotated[
    float | None,
    typer.Option("--timeout", metavar="SECONDS", callback=above_zero, help="Give up after that; by default never."),
]


@commands.callback()
def show(
    context: typer.Context,
    target: Target = DEFAULT_TARGET,
    as_json: Annotated[bool, typer.Option("--json", help="For machines: a JSON array, memory in bytes.")] = False,
) -> None:
    """List a server's models: state, device, memory, and why one is not ready (in a pipe cut short; see --json)."""
    context.obj = target
    if context.invoked_subcommand is not None:
        return
    with connected(target) as client:
        models = client.models()
    if as_json:
        typer.echo(json.dumps([asdict(model) for model in models], indent=2))
    else:
        console = stdout()
        console.print(table(models, None if console.is_terminal else _PIPED_REASON_COLUMNS))


@commands.command()
def load(context: typer.Context, model: ModelName, target: Target = DEFAULT_TARGET, timeout_s: Timeout = None) -> None:
    """Load a model, or load it again to take its newest files; returns when it is ready."""
    with connected(_target(context, target)) as client:
        client.load(model, timeout_s=timeout_s)
    typer.echo(f"loaded {model}")


@commands.command()
def unload(
    context: typer.Context, model: ModelName, target: Target = DEFAULT_TARGET, timeout_s: Timeout = None
) -> None:
    """Unload a model, after the work it has accepted."""
    with connected(_target(context, target)) as client:
        client.unload(model, timeout_s=timeout_s)
    typer.echo(f"unloaded {model}")


def table(models: "Sequence[ModelInfo]", reason_columns: int | None = None) -> "Table":
    """A row per version of a model; reasons are cut to so many columns, or folded to what the terminal leaves."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    rendered = Table(box=box.SIMPLE_HEAD)
    rendered.add_column("Model", overflow="fold")
    for heading in ("Version", "State", "Device"):
        rendered.add_column(heading, no_wrap=True)
    rendered.add_column("Memory", justify="right", no_wrap=True)
    rendered.add_column("Ready", no_wrap=True)
    rendered.add_column("Reason", overflow="fold")
    for model in models:
        memory = format_bytes(model.memory_bytes)
        ready = Text("yes", style="green") if model.ready else Text("no", style="red")
        # Names and reasons come from the server: plain text, whatever brackets they hold.
        plain = [Text(value) for value in (model.name, model.version, model.state, model.device, memory)]
        reason = Text(" ".join(model.reason.split()))
        if reason_columns is not None:
            reason.truncate(reason_columns, overflow="ellipsis")
        rendered.add_row(*plain, ready, reason)
    return rendered


def _target(context: typer.Context, target: str) -> str:
    """The target given to this command, else the one given to `models` before it."""
    return target if target != DEFAULT_TARGET else str(context.obj)
