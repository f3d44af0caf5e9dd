"""`moorage infer`: one request, from the command line."""

from enum import StrEnum
from typing import Annotated

import typer

from moorage.cli.remote import DEFAULT_TARGET, ModelVersion, Priority, Target, above_zero, connected
from moorage.cli.terminal import WRONG_USAGE, fail, stdout


class OutputFormat(StrEnum):
    """How the outputs are printed."""

    TEXT = "text"
    JSON = "json"


def infer(  # noqa: PLR0913, PLR0917 an option of the command each
    model: Annotated[str, typer.Argument(metavar="MODEL", help="The model's name.")],
    text: Annotated[
        list[str] | None,
        typer.Option("--text", metavar="STR", help="A row of the model's one BYTES input; repeatable."),
    ] = None,
    json_file: Annotated[
        str | None,
        typer.Option("--json", metavar="FILE|-", help='Inputs as nested lists: {"NAME": [[…]]}; - is stdin.'),
    ] = None,
    npy: Annotated[
        list[str] | None, typer.Option("--npy", metavar="NAME=FILE", help="An input from a .npy file; repeatable.")
    ] = None,
    output: Annotated[
        OutputFormat,
        typer.Option("--output", help="text abbreviates; json prints every value, NaN and Infinity as strings."),
    ] = OutputFormat.TEXT,
    version: ModelVersion = "",
    priority: Priority = 0,
    timeout_s: Annotated[
        float | None,
        typer.Option("--timeout", metavar="SECONDS", callback=above_zero, help="Above 0; by default the model's own."),
    ] = None,
    target: Target = DEFAULT_TARGET,
) -> None:
    """Run a model on inputs from the command line, and print what comes out.

    Values take the datatypes that the model declares, where they can; --text and --json add a missing batch axis.
    """
    from moorage.cli import inputs, outputs
    from moorage.cli.arrays import InputError
    from moorage.cli.files import named_files

    if not (text or json_file or npy):
        fail("nothing to infer: give --text, --json or --npy", WRONG_USAGE)
    try:
        sources = inputs.read_sources(tuple(text or ()), json_file, named_files("--npy", npy or ()))
        with connected(target) as client:
            metadata = client.metadata(model, version)
            tensors = inputs.tensors(metadata, sources)
            results = client.infer(model, tensors, version=version, priority=priority, timeout_s=timeout_s)
    except InputError as error:
        fail(str(error), WRONG_USAGE)
    if output is OutputFormat.JSON:
        typer.echo(outputs.as_json(metadata, results))
    else:
        stdout().print(outputs.as_text(metadata, results), markup=False, soft_wrap=True)
