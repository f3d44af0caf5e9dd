"""`moorage serve`: the server."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from moorage.cli.sizes import format_bytes
from moorage.cli.terminal import FAILED, WRONG_USAGE, fail, stdout
from moorage.rpc.environment import prepare_grpc

if TYPE_CHECKING:
    from moorage.app import Started


Config = Annotated[Path | None, typer.Option("--config", metavar="FILE", help="Settings, such as moorage.toml.")]
Models = Annotated[Path | None, typer.Option("--models", metavar="DIR", help="The repository: a folder per model.")]
Budget = Annotated[
    str | None, typer.Option("--budget", metavar="SIZE", help="What the cpu device may hold, such as 2GiB.")
]


def serve(
    config: Config = None,
    models: Models = None,
    grpc: Annotated[str | None, typer.Option("--grpc", metavar="HOST:PORT", help="Port 0: any free one.")] = None,
    http: Annotated[
        str | None, typer.Option("--http", metavar="HOST:PORT|off", help="For /healthz and /readyz; off: none.")
    ] = None,
    budget: Budget = None,
) -> None:
    """Serve the models of a repository over gRPC until SIGTERM or Ctrl-C; a second signal does not wait for work.

    Options win over the environment (MOORAGE_SECTION__KEY), and that over the file. Exits with 2 where the
    configuration is wrong, and with 1 where the server can't start.
    """
    prepare_grpc()
    try:
        from moorage.app import run
        from moorage.config import ConfigError, load_settings
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "moorage":
            raise
        fail(f"to serve: pip install 'moorage[server]' (the package {error.name} is missing)", FAILED)
    try:
        settings = load_settings(config, overrides(models=models, grpc=grpc, http=http, budget=budget))
    except ConfigError as error:
        fail("; ".join(str(error).splitlines()), WRONG_USAGE)  # a line per problem
    try:
        exit_code = run(settings, on_started=announce)
    except OSError as error:  # an address that is taken, a repository that can't be read
        fail(str(error), FAILED)
    raise typer.Exit(exit_code)


def overrides(*, models: Path | None, grpc: str | None, http: str | None, budget: str | None) -> dict[str, Any]:
    """The options that were given, laid out as the settings are."""
    server = {key: value for key, value in {"grpc": grpc, "http": http}.items() if value is not None}
    given: dict[str, Any] = {"server": server} if server else {}
    if models is not None:
        given["repository"] = {"path": str(models)}
    if budget is not None:
        given["devices"] = {"cpu": {"budget": budget}}
    return given


def announce(started: "Started") -> None:
    """Print what is served, where, on which budget. The line of the gRPC address is made to be parsed, too."""
    devices = ", ".join(f"{name} {format_bytes(budget_bytes)}" for name, budget_bytes in started.devices)
    lines = [
        ("gRPC", started.grpc_address),
        ("HTTP", started.http_address or "off"),
        ("Repository", started.repository),
        ("Budget", devices or "none"),
        ("Models", ", ".join(started.models) or "none"),
        *(("Broken", f"{name}: {' '.join(reason.split())}") for name, reason in started.broken),
    ]
    console = stdout()
    for label, value in lines:
        console.print(f"{label}  {value}", markup=False, soft_wrap=True)
    console.file.flush()
