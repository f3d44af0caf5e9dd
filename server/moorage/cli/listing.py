"""What `moorage models` shows: a row per version of a model, as a table or for machines."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from moorage.cli.sizes import format_bytes

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from moorage_client import ModelInfo, ModelPolicy, ModelStatus, Snapshot, SyncClient, Understudy

_MOVING = {"loading": "LOADING", "unloading": "UNLOADING"}


@dataclass(frozen=True, slots=True)
class Row:
    """One version of one model. residency and what follows it are known of Moorage's own servers only.

    state: READY, LOADING, UNLOADING or UNAVAILABLE. residency: where its weights are.
    memory_bytes: all that it holds on its device. leased_bytes: the same by kind.
    loads to oom_refused: how often since the server started; see ResidencyCounts of moorage.v1.
    understudies: the model on other devices, see Understudy there. In tables they have rows of their own.
    """

    name: str
    version: str
    state: str
    ready: bool
    reason: str
    device: str
    memory_bytes: int
    residency: str = ""
    leased_bytes: Mapping[str, int] = field(default_factory=dict)
    host_bytes: int = 0
    priority: int | None = None
    reserved_bytes: int = 0
    limit_bytes: int | None = None
    pinned: bool = False
    waiting_rows: int = 0
    running_requests: int = 0
    loads: int = 0
    evictions: int = 0
    restores: int = 0
    preemptions: int = 0
    out_of_memory: int = 0
    oom_alone: int = 0
    oom_evicted: int = 0
    oom_halved: int = 0
    oom_other_device: int = 0
    oom_fallback: int = 0
    oom_refused: int = 0
    understudies: tuple["Understudy", ...] = ()


def rows_of(client: "SyncClient") -> list[Row]:
    """All models of a server, by name and version; of any server of the protocol."""
    from moorage_client import NotSupported

    try:
        return _rows(client.snapshot())
    except NotSupported:
        return [_row_of_index(model) for model in client.models()]


def share_text(policy: "ModelPolicy | Row", separator: str = ", ") -> str:
    """Such as "priority 2, reserved 1 GiB, pinned"; empty where nothing is known."""
    if policy.priority is None:
        return ""
    told = [f"priority {policy.priority}"]
    told += [f"reserved {format_bytes(policy.reserved_bytes)}"] if policy.reserved_bytes else []
    told += [] if policy.limit_bytes is None else [f"limit {format_bytes(policy.limit_bytes)}"]
    return separator.join([*told, "pinned"] if policy.pinned else told)


def piped_table(rows: Sequence[Row], reason_columns: int) -> "Table":
    """A line per row whatever is in it, always of the same columns; reasons cut to so many characters."""
    from rich.text import Text

    rendered = _empty_table()
    for heading in ("Model", "Version", "State", "Device", "Memory", "Host", "Share", "Wait", "Run", "Ready"):
        rendered.add_column(heading, no_wrap=True)
    rendered.add_column("Reason", no_wrap=True)
    for row in _with_understudies(rows):
        reason = Text(" ".join(row.reason.split()))
        reason.truncate(reason_columns, overflow="ellipsis")
        state, ready = row.residency or row.state, "yes" if row.ready else "no"
        told = (row.name, row.version, state, row.device, _memory_text(row, ", "), _host_text(row), share_text(row))
        counts = (str(row.waiting_rows or ""), str(row.running_requests or ""))
        rendered.add_row(*map(Text, (*told, *counts, ready)), reason)
    return rendered


def terminal_table(rows: Sequence[Row]) -> "Table":
    """As narrow as it goes: facts below each other, and no column that is empty in every row."""
    from rich.text import Text

    rows = _with_understudies(rows)
    cells: dict[str, list[Text]] = {
        # Names and reasons come from the server: plain text, whatever brackets they hold.
        "Model": [Text(f"{row.name}/{row.version}" if row.version else row.name) for row in rows],
        "State": [_state_text(row) for row in rows],
        "Memory": [Text(_places_text(row)) for row in rows],
        "Share": [Text(share_text(row, "\n")) for row in rows],
        "Wait": [Text(str(row.waiting_rows or "")) for row in rows],
        "Run": [Text(str(row.running_requests or "")) for row in rows],
        "Reason": [Text(" ".join(row.reason.split())) for row in rows],
    }
    rendered = _empty_table()
    shown = [heading for heading in cells if any(cells[heading])]
    for heading in shown:
        folds = heading in ("Model", "Reason")
        rendered.add_column(heading, no_wrap=not folds, overflow="fold", min_width=8 if folds else None)
    for line in zip(*(cells[heading] for heading in shown), strict=True):
        rendered.add_row(*line)
    return rendered


def _with_understudies(rows: Sequence[Row]) -> list[Row]:
    return [each for row in rows for each in (row, *(_row_of_understudy(row, it) for it in row.understudies))]


def _row_of_understudy(row: Row, understudy: "Understudy") -> Row:
    """It is ready where its model is, as that brings it in when it is needed; unless it could not be loaded."""
    ready = row.ready and understudy.state != "failed"
    return Row(
        name=row.name,
        version=understudy.version,
        state=_MOVING.get(understudy.state, "READY" if ready else "UNAVAILABLE"),
        ready=ready,
        reason=understudy.reason,
        device=understudy.device,
        memory_bytes=sum(understudy.leased_bytes.values()),
        residency=understudy.state,
        leased_bytes=understudy.leased_bytes,
        host_bytes=understudy.host_bytes,
        waiting_rows=understudy.waiting_rows,
        running_requests=understudy.running_requests,
    )


def _empty_table() -> "Table":
    from rich import box
    from rich.table import Table

    return Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))


def _state_text(row: Row) -> "Text":
    from rich.text import Text

    state = row.residency or row.state
    if row.ready:
        return Text(state, style="green")
    return Text(f"{state}\nnot ready" if row.residency else state, style="red")


def _memory_text(row: Row, separator: str) -> str:
    """By kind where that is known, the largest first."""
    kinds = sorted(row.leased_bytes.items(), key=lambda item: -item[1])
    by_kind = separator.join(f"{format_bytes(size_bytes)} {kind}" for kind, size_bytes in kinds)
    return by_kind or format_bytes(row.memory_bytes)


def _places_text(row: Row) -> str:
    """A line for the device and for each kind of bytes there, and one for the host."""
    on_device = [row.device, _memory_text(row, "\n")] if row.device else []
    on_host = [f"{_host_text(row)} host"] if row.host_bytes else []
    return "\n".join(on_device + on_host)


def _host_text(row: Row) -> str:
    return format_bytes(row.host_bytes) if row.host_bytes else ""


def _rows(snapshot: "Snapshot") -> list[Row]:
    rows = [_row(model) for model in snapshot.models]
    rows += [
        Row(broken.name, "", "UNAVAILABLE", ready=False, reason=broken.reason, device="", memory_bytes=0)
        for broken in snapshot.broken_models
    ]
    return sorted(rows, key=lambda row: row.name)  # stable: the versions of a model stay in their order


def _row(model: "ModelStatus") -> Row:
    return Row(
        name=model.name,
        version=model.version,
        state="READY" if model.ready else _MOVING.get(model.state, "UNAVAILABLE"),
        ready=model.ready,
        reason=model.reason,
        device=model.device,
        memory_bytes=sum(model.leased_bytes.values()),
        residency=model.state,
        leased_bytes=model.leased_bytes,
        host_bytes=model.host_bytes,
        priority=model.policy.priority,
        reserved_bytes=model.policy.reserved_bytes,
        limit_bytes=model.policy.limit_bytes,
        pinned=model.policy.pinned,
        waiting_rows=model.waiting_rows,
        running_requests=model.running_requests,
        understudies=model.understudies,
        **asdict(model.residency_counts),
    )


def _row_of_index(model: "ModelInfo") -> Row:
    return Row(
        name=model.name,
        version=model.version,
        state=model.state,
        ready=model.ready,
        reason=model.reason,
        device=model.device,
        memory_bytes=model.memory_bytes,
    )
