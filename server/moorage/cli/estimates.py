"""`moorage estimates`: what is expected of a model's runs, and how that compared."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from moorage.cli.remote import DEFAULT_TARGET, AsJson, ModelVersion, Target, connected
from moorage.cli.sizes import format_bytes
from moorage.cli.terminal import stdout

if TYPE_CHECKING:
    from rich.table import Table

    from moorage_client import RunEstimate


def estimates(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="The model's name.")],
    version: ModelVersion = "",
    target: Target = DEFAULT_TARGET,
    as_json: AsJson = False,
) -> None:
    """Show what a server expects of a model's runs, by their size: memory and time, and how far off that was.

    Error is by what part more than was measured had been expected; of seconds, how far runs are off on average.
    """
    with connected(target) as client:
        told = client.run_estimates(model, version=version)
    if as_json:
        typer.echo(json.dumps([asdict(estimate) for estimate in told], indent=2))
    elif told:
        stdout().print(estimates_table(told))
    else:
        stdout().print(f"nothing is known of the runs of {model} yet", markup=False)


def estimates_table(told: Sequence["RunEstimate"]) -> "Table":
    """A line for each size of run."""
    from rich import box
    from rich.table import Table

    rendered = Table(box=box.SIMPLE_HEAD)
    for heading in ("Rows", "Row, at most", "Leased", "Expected", "Measured", "Error", "Runs", "Seconds", "Error"):
        rendered.add_column(heading, justify="right", no_wrap=True)
    for estimate in told:
        rendered.add_row(
            str(estimate.rows),
            format_bytes(estimate.row_bytes) if estimate.row_bytes else "",
            format_bytes(estimate.leased_bytes),
            _bytes(estimate.expected_bytes),
            _bytes(estimate.measured_bytes),
            _percent(estimate.bytes_error, "+.0%"),
            str(estimate.measured_runs or ""),
            "" if estimate.expected_s is None else f"{estimate.expected_s:.4f}",
            _percent(estimate.seconds_error, ".0%"),
        )
    return rendered


def _bytes(size_bytes: int | None) -> str:
    return "" if size_bytes is None else format_bytes(size_bytes)


def _percent(part: float | None, form: str) -> str:
    return "" if part is None else format(part, form)
