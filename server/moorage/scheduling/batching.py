"""When the next run begins, and which waiting requests share it.

It takes the head of the queue and what is compatible with it, as far as rows, memory and transfer size allow. A
busy device lets it fill meanwhile. On an idle one it begins at once, unless others are about to come for whom waiting
pays.
"""

import math
from collections.abc import Callable, Iterable, Sequence

from moorage.scheduling.entries import Entry
from moorage.scheduling.workspaces import Workspaces

# So many at the head of a queue are passed by, to find others for a run.
_MOST_PASSED_BY = 256
# By so much what a size of run takes, which was never seen, may be less than lines through others foretell.
_DOUBT = 1.25


def form_batch(
    waiting: Iterable[Entry],
    workspaces: Workspaces,
    most_rows: int,
    *,
    free_bytes: float,
    max_input_bytes: int,
    preferred_sizes: Sequence[int] = (),
) -> list[Entry]:
    """The head of the queue and those behind it that can share its run; empty if the head does not fit.

    Who is unlike the head, by shapes or parameters, is passed by: others who join that run cost them less than a run of
    their own would. Who is tried again shares it with those of the same cohort, and is not passed by.

    most_rows: of a run of several requests. free_bytes: what the run's workspace may take.
    max_input_bytes: inputs of one run together, padding included, unless a single request is larger.
    preferred_sizes: see BatchingPolicy.
    """
    batch: list[Entry] = []
    rows = size_bytes = row_bytes = passed_by = 0
    has_shapes = workspaces.has_learned
    for entry in waiting:
        request = entry.request
        if batch and not _compatible(batch[0], entry):
            passed_by += 1
            if batch[0].cohort or (not entry.cohort and passed_by < _MOST_PASSED_BY):
                continue
            break
        if batch and (rows + request.rows > most_rows or size_bytes + request.size_bytes > max_input_bytes):
            break
        if has_shapes:
            row_bytes = max(row_bytes, request.row_bytes)
        if workspaces.bytes_for(rows + request.rows, row_bytes) > free_bytes:
            break
        batch.append(entry)
        rows += request.rows
        size_bytes += request.size_bytes
        if request.batch_key is None:
            break
    if batch and batch[0].request.padded:
        batch, rows = _within_padded(batch, max_input_bytes)
    return _cut(batch, rows, preferred_sizes) if preferred_sizes else batch


def _within_padded(batch: list[Entry], max_input_bytes: int) -> tuple[list[Entry], int]:
    """Those at the head whose inputs are within the bound once they are filled up, and their rows.

    Some bytes of a long request among many short ones become as many of each.
    """
    rows = other_bytes = 0
    largest = batch[0].request.padded
    for count, entry in enumerate(batch):
        request = entry.request
        largest = tuple([tuple(map(max, *pair)) for pair in zip(largest, request.padded, strict=True)])
        other_bytes += request.size_bytes - request.rows * _row_bytes(request.padded)
        padded_bytes = (rows + request.rows) * _row_bytes(largest)
        if count and padded_bytes + other_bytes > max_input_bytes:
            return batch[:count], rows
        rows += request.rows
    return batch, rows


def _row_bytes(padded: Iterable[tuple[int, ...]]) -> int:
    return sum(map(math.prod, padded))


def _cut(batch: list[Entry], rows: int, sizes: Sequence[int]) -> list[Entry]:
    """To the largest of the preferred sizes that it fills, if it fills any."""
    most = max((size for size in sizes if size <= rows), default=rows)
    while rows > most and len(batch) > 1:
        rows -= batch.pop().request.rows
    return batch


def _compatible(head: Entry, other: Entry) -> bool:
    return other.cohort == head.cohort and other.request.batch_key == head.request.batch_key


def halves(entries: Sequence[Entry]) -> tuple[Sequence[Entry], ...]:
    """Those of a failed run in two groups of about as many rows, or one group where there is but one of them."""
    if len(entries) < 2:
        return (entries,) if entries else ()
    rows, half = 0, sum(entry.request.rows for entry in entries) / 2
    for index, entry in enumerate(entries[:-1], start=1):
        rows += entry.request.rows
        if rows >= half:
            return entries[:index], entries[index:]
    return entries[:-1], entries[-1:]


def pays_to_wait(
    cost_s: Callable[[int], float],
    waiting: int,
    expected: int,
    wait_s: float,
    rows_each: float,
    *,
    is_known: Callable[[int], bool],
) -> bool:
    """Whether one run for all takes less, with the wait for those who are expected, than two after each other.

    Callers in closed loops that are served in two groups take turns for good: each waits for both runs every time.
    Served together, they wait for each other and for one run. So the shorter of the two is the lower latency and the
    higher throughput (Little's law).

    cost_s: of a run of so many rows. wait_s: until the expected ones have come. rows_each: of a request. is_known:
    whether runs of so many rows were seen. What was not is tried where it may pay: two groups of two would never learn
    what four take, where one row and two tell no more than that it might be twice as much.
    """
    apart_s = cost_s(_rows(waiting, rows_each)) + cost_s(_rows(expected, rows_each))
    rows = _rows(waiting + expected, rows_each)
    if not is_known(rows):
        apart_s *= _DOUBT
    return wait_s + cost_s(rows) < apart_s


def _rows(requests: int, rows_each: float) -> int:
    return max(1, round(requests * rows_each))
