"""What is expected of a model's runs, beside what they turned out to take."""

from dataclasses import dataclass, replace

from moorage.scheduling.records import ModelRecord


@dataclass(frozen=True, slots=True)
class RunEstimate:
    """Of runs of so many rows, none of which has more than row_bytes of input.

    leased_bytes: for the next such run. expected_bytes: the most that it is taken to need, by what was measured;
    measured_bytes: of the latest that was measured, and bytes_error: by what part more than that had been expected of
    it; None before one was. measured_runs: how many; 0 where all of it stands in a profile.
    expected_s: of the next such run, and seconds_error: by what part runs of about that size and shape differ from what
    was expected, on average; None before two of them ended.
    """

    rows: int
    row_bytes: int
    leased_bytes: int
    expected_bytes: int | None = None
    measured_bytes: int | None = None
    bytes_error: float | None = None
    measured_runs: int = 0
    expected_s: float | None = None
    seconds_error: float | None = None


def run_estimates(model: ModelRecord) -> tuple[RunEstimate, ...]:
    """By shape and rows, from small to large. Of sizes that were measured; or else of those that ran."""
    workspaces = model.workspaces
    if not workspaces.has_learned:
        return tuple(
            _with_seconds(model, RunEstimate(rows, row_bytes, workspaces.bytes_for(rows)))
            for rows, row_bytes in _sizes(model)
        )
    return tuple(
        _with_seconds(
            model,
            RunEstimate(
                rows=peak.rows,
                row_bytes=row_bytes,
                leased_bytes=workspaces.bytes_for(peak.rows, row_bytes),
                expected_bytes=round(peak.size_bytes),
                measured_bytes=peak.measured_bytes,
                bytes_error=_error(peak.foreseen_bytes, peak.measured_bytes),
                measured_runs=peak.runs,
            ),
        )
        for row_bytes, peak in workspaces.peaks()
    )


def _error(foreseen_bytes: float | None, measured_bytes: int) -> float | None:
    if foreseen_bytes is None:
        return None
    return (foreseen_bytes - measured_bytes) / max(1, measured_bytes)


def _sizes(model: ModelRecord) -> list[tuple[int, int]]:
    return [] if model.seconds.is_empty else model.seconds.sizes()


def _with_seconds(model: ModelRecord, estimate: RunEstimate) -> RunEstimate:
    seconds = model.seconds
    if seconds.is_empty:
        return estimate
    rows, row_bytes = estimate.rows, estimate.row_bytes
    expected_s = seconds.expected_s(rows, row_bytes if model.rows_vary else None)
    return replace(estimate, expected_s=expected_s, seconds_error=seconds.error(rows, row_bytes))
