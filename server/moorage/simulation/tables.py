"""A report as tables for people: a row per figure, a column per policy."""

from collections.abc import Callable, Iterator

from rich import box
from rich.table import Table

from moorage.simulation.report import CacheFigures, PolicyFigures, Report, Transfers

_GIGABYTE = 10**9

_FIGURES: tuple[tuple[str, Callable[[PolicyFigures], str]], ...] = (
    ("goodput, requests/s", lambda it: f"{it.goodput_per_s:.2f}"),
    ("requests", lambda it: str(it.requests)),
    ("answered", lambda it: str(it.answered)),
    ("in time", lambda it: str(it.in_time)),
    ("runs", lambda it: f"{it.runs} of {it.rows_per_run:.2f} rows"),
    ("loads", lambda it: _moved(it.loads)),
    ("restores", lambda it: _moved(it.restores)),
    ("evictions", lambda it: _moved(it.evictions)),
    ("came back", lambda it: _moved(it.returned)),
    ("preemptions", lambda it: str(it.preemptions)),
    ("killed workers", lambda it: str(it.kills)),
    ("slots busy", lambda it: f"{it.busy:.1%}"),
    ("memory held", lambda it: f"{it.memory_held:.1%}"),
    ("virtual time", lambda it: f"{it.seconds:.1f} s"),
)
_CACHES: tuple[tuple[str, Callable[[CacheFigures], int]], ...] = (
    ("LRU", lambda caches: caches.lru_bytes),
    ("LFU", lambda caches: caches.lfu_bytes),
    ("Belady", lambda caches: caches.belady_bytes),
    ("lower bound", lambda caches: caches.fewest_bytes),
)


def table(report: Report) -> Table:
    """Everything in a report."""
    weights = f"{report.weights_bytes / _GIGABYTE:.1f} GB"
    title = f"{report.scenario}: {report.models} models of {weights} on {report.devices} devices, seed {report.seed}"
    rendered = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    rendered.add_column("", no_wrap=True)
    for policy in report.policies:
        rendered.add_column(policy.policy, justify="right", no_wrap=True)
    for label, cells in _rows(report):
        rendered.add_row(label, *cells)
    return rendered


def _rows(report: Report) -> Iterator[tuple[str, list[str]]]:
    for label, figure in _FIGURES:
        yield label, [figure(policy) for policy in report.policies]
    yield from _failures(report)
    yield from _latencies(report)
    for label, cache in _CACHES:
        yield f"came back in one cache, {label}", [_gigabytes(cache(policy.one_cache)) for policy in report.policies]
    for label, cache in _CACHES:
        yield f"came back as placed, {label}", [_gigabytes(cache(policy.as_placed)) for policy in report.policies]
    yield "came back / LRU as placed", [_ratio(policy.returned_to_lru) for policy in report.policies]
    yield "came back / Belady as placed", [_ratio(policy.returned_to_belady) for policy in report.policies]


def _failures(report: Report) -> Iterator[tuple[str, list[str]]]:
    for error in sorted({error for policy in report.policies for error in policy.failures}):
        yield f"failed, {error}", [str(policy.failures.get(error, 0)) for policy in report.policies]


def _latencies(report: Report) -> Iterator[tuple[str, list[str]]]:
    for priority in sorted({it.priority for policy in report.policies for it in policy.priorities}):
        yield f"latency p50 / p99, priority {priority}", [_latency(policy, priority) for policy in report.policies]


def _latency(policy: PolicyFigures, priority: int) -> str:
    found = next((it for it in policy.priorities if it.priority == priority), None)
    return f"{found.p50_s:.3f} / {found.p99_s:.3f} s" if found else "none"


def _moved(traffic: Transfers) -> str:
    return f"{traffic.count}, {_gigabytes(traffic.size_bytes)}"


def _gigabytes(size_bytes: int) -> str:
    return f"{size_bytes / _GIGABYTE:.1f} GB"


def _ratio(ratio: float | None) -> str:
    return "none" if ratio is None else f"{ratio:.3f}"
