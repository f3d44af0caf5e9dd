"""Whether a request can still be answered in time, by what its model's runs and ways in are known to take."""

from collections.abc import Iterable

from moorage.domain.errors import DeadlineUnmeetable, TimeNeeded
from moorage.domain.model import ModelState
from moorage.domain.request import InferenceRequest
from moorage.scheduling.actions import Run
from moorage.scheduling.entries import Entry
from moorage.scheduling.estimates import KNOWN_FOR_RUNS, KNOWN_FOR_S
from moorage.scheduling.records import ModelRecord

# Deadlines so many times further off than the worst wait need no closer look.
_MARGIN = 2.0
_LEAST_ROWS = 256
# What an answer takes at most on its way back, and with it what a request had taken when its deadline was first read
# here; and of short deadlines, which part of their time.
ANSWER_S = 0.010
_ANSWER_SHARE = 0.02


def cannot_be_met(
    model: ModelRecord, request: InferenceRequest, priority: int, now: float
) -> DeadlineUnmeetable | None:
    """Why a request that arrives can't be answered by its deadline, if that is so: the model's way in, the runs
    before its own, and its own take longer.

    What is expected is the least that it can take: other models' work on the device is not counted, nor work of lower
    priority, nor anything that is not known. Stepped models take as many steps as they please, so nothing is known of
    them. Only where needs_a_look().
    """
    if model.stepped:
        return None
    resident = model.state is ModelState.RESIDENT
    left_s = request.deadline_s - now
    wait_s, run_s = _wait_and_run_s(model, model.queue.rows_before(priority, request.deadline_s), request, now)
    load_s = 0.0 if resident else _way_in_s(model, now)
    needed = TimeNeeded(wait_s, load_s, run_s, answer_s(request))
    return None if needed.all_s <= left_s else DeadlineUnmeetable(now - request.arrived_s, left_s, needed)


def answer_s(request: InferenceRequest) -> float:
    """Seconds that are left for the answer to come in time. Work that ends just before a deadline is mostly lost, and
    where more comes than can be done there is always somebody who is that close."""
    return min(ANSWER_S, _ANSWER_SHARE * (request.deadline_s - request.arrived_s))


def row_bytes_of(entries: Iterable[Entry]) -> int:
    """Bytes of input of one row of a run, on average; of one that is filled up to the size of the largest, there."""
    rows = total_bytes = most_bytes = 0
    padded = False
    for entry in entries:
        request = entry.request
        row_bytes = request.row_bytes
        padded = padded or bool(request.padded)
        most_bytes = max(most_bytes, row_bytes)
        rows += request.rows
        total_bytes += row_bytes * request.rows
    return most_bytes if padded else total_bytes // max(1, rows)


def is_known(model: ModelRecord, now: float) -> bool:
    """Whether something ran lately. Else requests are let through, whatever is expected, or a model that was slow for
    a while would be refused for ever."""
    seconds = model.seconds
    if seconds.is_empty:
        return False
    return now - model.served_s <= max(KNOWN_FOR_S, KNOWN_FOR_RUNS * seconds.expected_s(1))


def _wait_and_run_s(model: ModelRecord, before: int, request: InferenceRequest, now: float) -> tuple[float, float]:
    """Seconds until the run that a request would be in, and of that run."""
    if not is_known(model, now):
        return 0.0, 0.0
    seconds, most_rows = model.seconds, model.most_rows
    runs_before, last_rows = divmod(before + request.rows - 1, most_rows)
    full_s = seconds.expected_s(most_rows)
    if model.spec.instances > 1:
        wait_s = _wait_for_one_of_many_s(model, runs_before, full_s, now)
    else:
        wait_s = runs_before * full_s + (_rest_s(model, model.runs[0], now) if model.runs else 0.0)
    remember(model)
    return wait_s, _own_run_s(model, request, min(most_rows, max(request.rows, last_rows + 1)), now)


def _rest_s(model: ModelRecord, run: Run, now: float) -> float:
    """Seconds that a run under way still takes."""
    row_bytes = row_bytes_of(run.entries) if model.rows_vary else None
    return max(0.0, run.started_s + model.seconds.expected_s(run.rows, row_bytes) - now)


def _own_run_s(model: ModelRecord, request: InferenceRequest, rows: int, now: float) -> float:
    """Seconds of a request's own run, which has so many rows: its own, and others', of which nothing is known."""
    seconds = model.seconds
    if not model.rows_vary:
        return seconds.expected_s(rows)
    row_bytes = request.row_bytes
    alone_s = seconds.least_s(request.rows, row_bytes, now)
    if rows == request.rows:
        return alone_s
    # They are as large as its own, or as rows usually are.
    others_s = seconds.expected_s(rows) - seconds.expected_s(request.rows)
    return min(seconds.least_s(rows, row_bytes, now), alone_s + others_s)


def _wait_for_one_of_many_s(model: ModelRecord, runs_before: int, full_s: float, now: float) -> float:
    """Seconds until an instance is free for a run with so many full ones before it: each takes the first that is."""
    idle = model.spec.instances - len(model.runs)
    free_in_s = sorted([0.0] * idle + [min(_rest_s(model, run, now), full_s) for run in model.runs])
    rounds, instance = divmod(runs_before, len(free_in_s))
    return free_in_s[instance] + rounds * full_s


def needs_a_look(model: ModelRecord, left_s: float) -> bool:
    """Whether a request with so many seconds left might be one that can't be answered in time. Most are not."""
    return left_s < model.worst_wait_s or model.queue.rows > model.worst_wait_rows


def remember(model: ModelRecord) -> None:
    """Keep what saves most requests a closer look: how long the worst wait is, with twice as many waiting as now, and
    what a slow run takes."""
    full_s = model.seconds.most_s(model.most_rows)
    model.worst_wait_rows = _LEAST_ROWS + 2 * model.queue.rows
    runs = 2 + model.worst_wait_rows // model.most_rows
    model.slow_run_s = _MARGIN * full_s
    model.worst_wait_s = _MARGIN * runs * full_s


def _way_in_s(model: ModelRecord, now: float) -> float:
    """Seconds that the model's way into memory takes at least, as far as that is known."""
    measured = model.measured
    began_s = model.way_began_s
    if model.state in {ModelState.OFFLOADED, ModelState.OFFLOADING}:
        return measured.restore_s or 0.0
    if model.state is ModelState.RESTORING:
        return max(0.0, began_s + (measured.restore_s or 0.0) - now)
    if model.state is ModelState.LOADING and model.weights is not None:
        return max(0.0, began_s + (measured.load_s or 0.0) - now)
    return measured.load_s or 0.0
