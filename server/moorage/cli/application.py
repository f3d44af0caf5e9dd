"""The commands, put together."""

from typing import Annotated

import typer

from moorage import __version__
from moorage.cli import batch, estimates, explain, hold, infer, models, profile, serve, simulate

application = typer.Typer(
    help="Moorage: many models, one GPU's memory. Serves models over gRPC, and talks to servers that do.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"moorage {__version__}")
        raise typer.Exit


@application.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version, and exit.")
    ] = False,
) -> None:
    """Options that need no command."""


application.command("serve")(serve.serve)
application.add_typer(models.commands, name="models")
application.command("infer")(infer.infer)
application.add_typer(batch.commands, name="batch")
application.command("profile")(profile.profile)
application.command("simulate")(simulate.simulate)
application.command("explain")(explain.explain)
application.command("estimates")(estimates.estimates)
application.command("hold")(hold.hold)
