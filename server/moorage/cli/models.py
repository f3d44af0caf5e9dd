"""`moorage models`: what a server has and who holds what; load, unload, and standing."""

import json
from dataclasses import asdict
from typing import Annotated

import typer

from moorage.cli.listing import piped_table, rows_of, share_text, terminal_table
from moorage.cli.remote import DEFAULT_TARGET, AsJson, ModelVersion, Target, above_zero, connected
from moorage.cli.sizes import parse_size
from moorage.cli.terminal import WRONG_USAGE, fail, stdout

# Of a reason, in a pipe: there is no width to fold it to, and a line should stay one. --json has all of it.
_PIPED_REASON_COLUMNS = 60

commands = typer.Typer(
    help="List a server's models; load or unload one, or change its standing.", invoke_without_command=True
)

ModelName = Annotated[str, typer.Argument(metavar="MODEL", help="The model's name.")]
Timeout = Annotated[
    float | None,
    typer.Option("--timeout", metavar="SECONDS", callback=above_zero, help="Give up after that; by default never."),
]


@commands.callback()
def show(
    context: typer.Context,
    target: Target = DEFAULT_TARGET,
    as_json: AsJson = False,
) -> None:
    """List a server's models: where their weights are, what they hold, their share, what waits and runs, and why one
    is not ready (in a pipe cut short; see --json).
    """
    context.obj = target
    if context.invoked_subcommand is not None:
        return
    with connected(target) as client:
        rows = rows_of(client)
    if as_json:
        typer.echo(json.dumps([asdict(row) for row in rows], indent=2))
    else:
        console = stdout()
        console.print(terminal_table(rows) if console.is_terminal else piped_table(rows, _PIPED_REASON_COLUMNS))


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


@commands.command()
def policy(  # noqa: PLR0913, PLR0917 an option of the command each
    context: typer.Context,
    model: ModelName,
    priority: Annotated[
        int | None, typer.Option("--priority", min=1, max=5, help="Of requests that name none; 1 is the highest.")
    ] = None,
    reserved: Annotated[
        str | None, typer.Option("--reserved", metavar="SIZE", help="Kept on its device for this model alone.")
    ] = None,
    limit: Annotated[
        str | None, typer.Option("--limit", metavar="SIZE|none", help="The most that its executions may hold.")
    ] = None,
    pinned: Annotated[
        bool | None, typer.Option("--pinned/--no-pinned", help="Whether its weights are safe from eviction.")
    ] = None,
    version: ModelVersion = "",
    target: Target = DEFAULT_TARGET,
    as_json: AsJson = False,
) -> None:
    """Change a model's standing among the others, until the server ends; prints all of it, as it is then."""
    if priority is None and reserved is None and limit is None and pinned is None:
        fail("nothing to change: give --priority, --reserved, --limit or --pinned", WRONG_USAGE)
    with connected(_target(context, target)) as client:
        changed = client.set_policy(
            model,
            version=version,
            priority=priority,
            reserved_bytes=None if reserved is None else parse_size("--reserved", reserved),
            limit_bytes=None if limit in (None, "none") else parse_size("--limit", limit),
            no_limit=limit == "none",
            pinned=pinned,
        )
    typer.echo(json.dumps(asdict(changed)) if as_json else f"{model}: {share_text(changed)}")


def _target(context: typer.Context, target: str) -> str:
    """The target given to this command, else the one given to `models` before it."""
    return target if target != DEFAULT_TARGET else str(context.obj)
