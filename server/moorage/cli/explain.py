"""`moorage explain`: could this model run now, and at whose expense."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from moorage.cli.remote import DEFAULT_TARGET, AsJson, ModelVersion, Priority, Target, connected
from moorage.cli.sizes import format_bytes
from moorage.cli.terminal import stdout

if TYPE_CHECKING:
    from rich.table import Table

    from moorage_client import Explanation, Holder

# In short; the server's reason says the rest.
_VERDICTS = {"now": "yes", "evict": "yes", "preempt": "yes", "wait": "not now", "refused": "no", "never": "never"}


def explain(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="The model's name.")],
    rows: Annotated[int, typer.Option("--rows", min=1, help="How many rows in one run.")] = 1,
    priority: Priority = 0,
    version: ModelVersion = "",
    target: Target = DEFAULT_TARGET,
    as_json: AsJson = False,
) -> None:
    """Tell whether a model could run so many rows now, and what would have to give way.

    If it could not: what is missing, and who holds it. Nothing is changed by asking. Exits with 0 whatever the answer
    is; --json has it as `verdict`.
    """
    with connected(target) as client:
        explanation = client.explain(model, rows, priority=priority, version=version)
    if as_json:
        typer.echo(json.dumps(asdict(explanation), indent=2))
        return
    console = stdout()
    for line in _lines(explanation):
        console.print(line, markup=False, soft_wrap=True)
    if explanation.holders:
        console.print(_table(explanation))


def _lines(told: "Explanation") -> Iterator[str]:
    yield f"{told.model}/{told.version}, {told.rows} rows at priority {told.priority} on {told.device or 'no device'}"
    reason = " ".join(told.reason.split())
    yield ": ".join(part for part in (_VERDICTS.get(told.verdict, told.verdict), reason) if part)
    missing = f", {format_bytes(told.missing_bytes)} missing" if told.missing_bytes else ""
    yield f"needs {format_bytes(told.needed_bytes)}, {format_bytes(told.free_bytes)} free{missing}"


def _table(told: "Explanation") -> "Table":
    """Everybody on the device, and whose turn it is to go."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    rendered = Table(box=box.SIMPLE_HEAD)
    for heading in ("Holder", "Kind", "Size", "Priority", "Fate"):
        rendered.add_column(heading, overflow="fold")
    fates = dict(_fates(told))
    for holder in told.holders:
        size, priority = format_bytes(holder.size_bytes), str(holder.priority or "")
        fate = fates.get(_identity(holder), "stays")
        rendered.add_row(*(Text(cell) for cell in (holder.owner, holder.kind, size, priority, fate)))
    return rendered


def _fates(told: "Explanation") -> "Iterator[tuple[tuple[str, str], str]]":
    for place, holder in enumerate(told.evict, start=1):
        yield _identity(holder), f"evicted ({place})"
    for place, holder in enumerate(told.preempt, start=1):
        yield _identity(holder), f"preempted ({place})"


def _identity(holder: "Holder") -> tuple[str, str]:
    return holder.owner, holder.kind
