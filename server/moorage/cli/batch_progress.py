"""How a batch goes, for who watches a terminal; and batches in a table."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from moorage_client import BatchInfo, BatchProgress, BatchResult

if TYPE_CHECKING:
    from moorage.cli.batch_results import Results


class Watch:
    """Hands results on, and shows how far it is."""

    def __init__(self, progress: Progress, batch_id: str) -> None:
        self._progress = progress
        self._task = progress.add_task(batch_id, total=None, rate="", failed="")

    def heard(self, event: BatchResult | BatchProgress | BatchInfo, results: "Results") -> None:
        match event:
            case BatchResult():
                results.write(event)
            case BatchProgress():
                self._show(event)
            case BatchInfo():
                self._progress.update(self._task, total=event.counts.received or None, completed=event.counts.finished)

    def _show(self, progress: BatchProgress) -> None:
        counts = progress.counts
        self._progress.update(
            self._task,
            total=counts.received or None,
            completed=counts.finished,
            rate=f"{progress.items_per_second:.0f}/s",
            failed=f"{counts.failed} failed" if counts.failed else "",
        )


@contextmanager
def watched(batch_id: str) -> Iterator[Watch]:
    """A bar on stderr, where that is a terminal."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
        TextColumn("[red]{task.fields[failed]}"),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
        yield Watch(progress, batch_id)


def table(infos: Sequence[BatchInfo]) -> Table:
    """A line for each."""
    rendered = Table("Batch", "Model", "State", "Items", "Succeeded", "Failed", "Durable", "Created", box=None)
    for info in infos:
        counts = info.counts
        created = datetime.fromtimestamp(info.created_at_s).isoformat(" ", "seconds")
        figures = (str(counts.received), str(counts.succeeded), str(counts.failed))
        durable = "yes" if info.options.durable else "no"
        rendered.add_row(info.batch_id, info.model, info.state.value, *figures, durable, created)
    return rendered
