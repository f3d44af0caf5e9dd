"""`moorage batch`: many items for a model, which the server goes on with whoever listens."""

import json
import secrets
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from moorage.cli.remote import DEFAULT_TARGET, AsJson, ModelVersion, Target, above_zero, connected
from moorage.cli.terminal import FAILED, WRONG_USAGE, fail, stdout

if TYPE_CHECKING:
    from moorage_client import BatchInfo, SyncBatch

commands = typer.Typer(
    help="Batches: submit many items, and see, follow or end what was submitted.", no_args_is_help=True
)

BatchId = Annotated[str, typer.Argument(metavar="ID", help="The batch's id.")]
Out = Annotated[str, typer.Option("--out", metavar="FILE|-", help="Where results go, as JSON lines; - is stdout.")]
Labels = Annotated[list[str] | None, typer.Option("--label", metavar="KEY=VALUE", help="Repeatable.")]


@commands.command()
def submit(  # noqa: PLR0913, PLR0917 an option of the command each
    model: Annotated[str, typer.Argument(metavar="MODEL", help="The model's name.")],
    items: Annotated[
        str,
        typer.Argument(
            metavar="ITEMS",
            help='A file of JSON lines such as {"id": "a", "inputs": {"text": "…"}}, - for stdin; or .npy or .npz, '
            "whose first axis is the items.",
        ),
    ],
    out: Out,
    batch_id: Annotated[
        str, typer.Option("--id", metavar="ID", help="The batch's own; the same again goes on with it.")
    ] = "",
    durable: Annotated[bool, typer.Option("--durable/--no-durable", help="Kept on the server's disk.")] = True,
    ordered: Annotated[bool, typer.Option("--ordered", help="Results in the order of the items.")] = False,
    priority: Annotated[int, typer.Option("--priority", min=1, max=5, help="1 is the highest, 5 the lowest.")] = 5,
    timeout_s: Annotated[
        float | None,
        typer.Option("--timeout", metavar="SECONDS", callback=above_zero, help="Of all of it; by default a day."),
    ] = None,
    attempts: Annotated[int | None, typer.Option("--attempts", min=1, max=100, help="Tries of an item.")] = None,
    labels: Labels = None,
    force: Annotated[bool, typer.Option("--force", help="Replace results that --out has.")] = False,
    version: ModelVersion = "",
    target: Target = DEFAULT_TARGET,
    as_json: AsJson = False,
) -> None:
    """Run a model on every item of a file, and write what became of each, exactly once.

    Ctrl-C leaves the batch to the server, and says how to come back to it. The same command again, with --id, goes on
    where the results in --out end, also after this process or the server was killed. Exits with 1 if an item failed.
    """
    from itertools import chain

    from moorage.cli.arrays import InputError
    from moorage.cli.batch_items import read_items
    from moorage.cli.batch_results import results_in
    from moorage_client import BatchOptions

    options = BatchOptions(version, priority, timeout_s, ordered, durable, attempts, labels=_labels(labels))
    wanted = batch_id or f"{model}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
    if force:
        _empty(out)
    try:
        with connected(target) as client:
            read = read_items(items, client.metadata(model, version))
            first = next(read, None)
            ahead = chain(() if first is None else (first,), read)
            with results_in(out, goes_on=bool(batch_id)) as results:
                if not batch_id:
                    typer.echo(f"batch {wanted}", err=True)  # needed to come back, however this ends
                batch = client.batch(wanted, model, ahead, options, after_sequence=results.sequence)
                _follow(batch, wanted, results, out, as_json=as_json)
    except InputError as error:
        fail(str(error), WRONG_USAGE)


@commands.command()
def attach(
    batch_id: BatchId,
    out: Out,
    after_sequence: Annotated[
        int, typer.Option("--after", metavar="N", min=0, help="Results with higher numbers; --out may say more.")
    ] = 0,
    target: Target = DEFAULT_TARGET,
    as_json: AsJson = False,
) -> None:
    """Follow a batch that was submitted, and write its results; those that --out lacks, if it has some."""
    from moorage.cli.batch_results import results_in

    with (
        connected(target) as client,
        results_in(out, goes_on=True, after_sequence=after_sequence) as results,
    ):
        _follow(client.attach(batch_id, results.sequence), batch_id, results, out, as_json=as_json)


def _follow(batch: "SyncBatch", batch_id: str, results: Any, out: str, *, as_json: bool) -> None:
    """Write results as they come. Ends the command with 1 if an item failed, or the batch was cut short."""
    from moorage.cli.batch_progress import watched

    try:
        with watched(batch_id) as watch:
            for event in batch.events():
                watch.heard(event, results)
    except KeyboardInterrupt:
        results.flush()
        after = f" --after {results.sequence}" if out == "-" else ""
        typer.echo(f"detached; the server goes on: moorage batch attach {batch_id}{after} --out {out}", err=True)
        raise typer.Exit(130) from None
    assert batch.info is not None
    if as_json:
        typer.echo(json.dumps(_document(batch.info)), err=out == "-")
    else:
        typer.echo(_line(batch.info), err=True)
    if batch.info.counts.failed or batch.info.state.value != "DONE":
        raise typer.Exit(FAILED)


@commands.command("list")
def list_batches(labels: Labels = None, target: Target = DEFAULT_TARGET, as_json: AsJson = False) -> None:
    """All batches that the server knows, the newest first."""
    from moorage.cli.batch_progress import table

    with connected(target) as client:
        found = list(client.batches(_labels(labels)))
    if as_json:
        typer.echo(json.dumps([_document(info) for info in found], indent=2))
    else:
        stdout().print(table(found))


@commands.command()
def show(batch_id: BatchId, target: Target = DEFAULT_TARGET, as_json: AsJson = False) -> None:
    """A batch as it is now."""
    with connected(target) as client:
        _tell(client.batch_info(batch_id), as_json=as_json)


@commands.command()
def cancel(batch_id: BatchId, target: Target = DEFAULT_TARGET, as_json: AsJson = False) -> None:
    """End a batch: items that have no result get none."""
    with connected(target) as client:
        _tell(client.cancel_batch(batch_id), as_json=as_json)


@commands.command()
def delete(batch_id: BatchId, target: Target = DEFAULT_TARGET) -> None:
    """Forget a batch that has ended, and its results."""
    with connected(target) as client:
        client.delete_batch(batch_id)
    typer.echo(f"deleted {batch_id}")


def _tell(info: "BatchInfo", *, as_json: bool) -> None:
    typer.echo(json.dumps(_document(info), indent=2) if as_json else _line(info))


def _line(info: "BatchInfo") -> str:
    counts = info.counts
    open_items = counts.received - counts.finished - counts.cancelled
    told = [f"{counts.succeeded} succeeded", f"{counts.failed} failed"]
    told += [f"{counts.cancelled} cancelled"] if counts.cancelled else []
    told += [f"{open_items} to come"] if open_items else []
    return f"{info.batch_id}: {info.state.value}, {counts.received} items: {', '.join(told)}"


def _document(info: "BatchInfo") -> dict[str, Any]:
    return asdict(info) | {"state": info.state.value}


def _labels(entries: list[str] | None) -> dict[str, str]:
    labels = {}
    for entry in entries or ():
        key, separator, value = entry.partition("=")
        if not (key and separator):
            fail(f"--label: expected KEY=VALUE, got '{entry}'", WRONG_USAGE)
        labels[key] = value
    return labels


def _empty(out: str) -> None:
    if out != "-":
        try:
            open(out, "w").close()
        except OSError as error:
            fail(f"--out {out}: {error.strerror or error}", WRONG_USAGE)
