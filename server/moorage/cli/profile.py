"""`moorage profile`: what runs of a model take, measured on the real device."""

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from moorage.cli.remote import ModelVersion
from moorage.cli.serve import Budget, Config, Models, overrides
from moorage.cli.sizes import format_bytes
from moorage.cli.terminal import FAILED, WRONG_USAGE, fail, stdout

if TYPE_CHECKING:
    from rich.table import Table

    from moorage.app.profile import Profile
    from moorage.cli.inputs import Sources
    from moorage.config import Settings


def profile(  # noqa: PLR0913, PLR0917 an option of the command each
    model: Annotated[str, typer.Argument(metavar="MODEL", help="The model's name.")],
    config: Config = None,
    models: Models = None,
    budget: Budget = None,
    version: ModelVersion = "",
    text: Annotated[
        list[str] | None,
        typer.Option("--text", metavar="STR", help="A row of the one BYTES input; each is profiled by itself."),
    ] = None,
    json_file: Annotated[
        str | None, typer.Option("--json", metavar="FILE|-", help='Rows as nested lists: {"NAME": [[…]]}; - is stdin.')
    ] = None,
    npy: Annotated[
        list[str] | None, typer.Option("--npy", metavar="NAME=FILE", help="An input from a .npy file; repeatable.")
    ] = None,
    shape: Annotated[
        list[str] | None,
        typer.Option("--shape", metavar="NAME=SIZE,…", help="Of an input of zeros, without batch axis; repeatable."),
    ] = None,
    keep: Annotated[bool, typer.Option("--keep/--no-keep", help="Write profile.json beside the model.")] = True,
) -> None:
    """Measure the memory and the time of a model's runs, from one row to max_batch_size, on this machine's device.

    The model is served alone, and given what the options name, or else what its first warm-up gives it, or zeros. What
    a run takes is kept in profile.json in the version's folder: a server leases it from the first run on. Runs between
    those sizes check it.
    """
    from moorage.cli.arrays import InputError
    from moorage.cli.files import named_files
    from moorage.cli.inputs import read_sources
    from moorage.rpc.environment import prepare_grpc

    prepare_grpc()
    from moorage.config import ConfigError, load_settings

    try:
        sources = read_sources(tuple(text or ()), json_file, named_files("--npy", npy or ()))
        settings = load_settings(config, overrides(models=models, grpc=None, http=None, budget=budget))
    except InputError as error:
        fail(str(error), WRONG_USAGE)
    except ConfigError as error:
        fail("; ".join(str(error).splitlines()), WRONG_USAGE)
    told = _measured(settings, model, version, sources, _shapes(shape or ()))
    _show(told)
    if keep:
        _keep(told)


def _measured(
    settings: "Settings", model: str, version: str, sources: "Sources", shapes: Mapping[str, tuple[int, ...]]
) -> "Profile":
    from moorage.app.profile import NotMeasured, take_profile
    from moorage.cli.arrays import InputError
    from moorage.cli.samples import samples_of, with_rows
    from moorage.domain.errors import MoorageError
    from moorage.repository.errors import RepositoryError
    from moorage_client import MoorageClientError

    async def take() -> "Profile":
        return await take_profile(
            settings,
            model,
            version,
            lambda metadata, spec: samples_of(metadata, sources, shapes, spec),
            with_rows,
        )

    try:
        return asyncio.run(take())
    except InputError as error:
        fail(str(error), WRONG_USAGE)
    except (MoorageError, MoorageClientError, RepositoryError, NotMeasured, OSError) as error:
        fail(str(error), FAILED)


def _shapes(entries: list[str] | tuple[str, ...]) -> dict[str, tuple[int, ...]]:
    shapes = {}
    for entry in entries:
        name, _, sizes = entry.partition("=")
        try:
            shapes[name] = tuple(int(size) for size in sizes.split(","))
        except ValueError:
            shapes[name] = ()
        if not name or not shapes[name] or min(shapes[name]) < 0:
            fail(f"--shape: expected NAME=SIZE,… such as audio=16000, got '{entry}'", WRONG_USAGE)
    return shapes


def _show(told: "Profile") -> None:
    console = stdout()
    console.print(
        f"{told.spec.name}/{told.spec.version} on {told.device}: {format_bytes(told.weights_bytes)} of weights",
        markup=False,
    )
    console.print(_table(told))
    for line in _most_rows(told):
        console.print(line, markup=False, soft_wrap=True)


def _table(told: "Profile") -> "Table":
    from rich import box
    from rich.table import Table

    rendered = Table(box=box.SIMPLE_HEAD)
    for heading in ("Rows", "Row", "Peak", "Reserved", "Foreseen", "Error", "Seconds", "Rows/s"):
        rendered.add_column(heading, justify="right", no_wrap=True)
    checks = {id(check.run): check for check in told.checks}
    for run in sorted([*told.runs, *(check.run for check in told.checks)], key=lambda run: (run.row_bytes, run.rows)):
        check = checks.get(id(run))
        rendered.add_row(
            str(run.rows),
            format_bytes(run.row_bytes) if run.row_bytes else "",
            format_bytes(run.peak_bytes),
            "" if run.reserved_bytes is None else format_bytes(run.reserved_bytes),
            "" if check is None else format_bytes(check.foreseen_bytes),
            "" if check is None else f"{check.error:+.0%}",
            f"{run.seconds:.4f}",
            f"{run.rows / max(1e-9, run.seconds):.0f}",
        )
    return rendered


def _most_rows(told: "Profile") -> Iterator[str]:
    """For each shape, how many rows memory has room for, and how that comes about."""
    for limit in told.limits:
        line = f"{format_bytes(limit.fixed_bytes)} + rows x {format_bytes(limit.per_row_bytes)}"
        held_bytes = format_bytes(told.weights_bytes + told.context_bytes)
        rows = "any number of" if limit.most_rows is None else f"at most {limit.most_rows}"
        of_what = f" of {format_bytes(limit.row_bytes)}" if limit.row_bytes else ""
        needed = f"{held_bytes} of weights and context + {told.margin:g} x ({line})"
        yield f"safe max_batch_size: {rows} rows{of_what}, as {needed} <= {format_bytes(told.budget_bytes)}"


def _keep(told: "Profile") -> None:
    from moorage.repository.errors import RepositoryError
    from moorage.repository.profiles import write_profile

    try:
        path = write_profile(Path(told.spec.path), told.device.partition(":")[0], told.runs)
    except (OSError, RepositoryError) as error:
        fail(f"profile.json could not be written: {error}", FAILED)
    stdout().print(f"kept in {path}", markup=False, soft_wrap=True)
