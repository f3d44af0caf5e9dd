"""Who of those who wait is answered in time by a run that begins now, and who leaves the place to others.

What a run takes grows with its rows. Where somebody would come too late by it, the run has the size, of that which
waits and its halves, that answers most; who comes too late by that one is refused at once, and others take their
places. This is the "early drop" of Nexus (Shen et al., SOSP 2019), with a size that follows from who waits: to compute
for whoever is nearest to the deadline instead makes runs small, and so everybody late.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile

from moorage.domain.errors import DeadlineUnmeetable, TimeNeeded
from moorage.scheduling.entries import Entry
from moorage.scheduling.prospects import answer_s, is_known, remember, row_bytes_of
from moorage.scheduling.records import ModelRecord

# So many at the head of a queue are looked at.
_MOST_LOOKED_AT = 512

Late = tuple[Entry, DeadlineUnmeetable]


def in_time(model: ModelRecord, batch: Sequence[Entry], now: float) -> list[Entry]:
    """As many of a run's members, from the first on, as are answered in time if it begins now; one at least.

    Those are all, unless the size that answers most is smaller, or somebody of high priority is close to the deadline.
    """
    costs = _Costs.of(model, batch, now)
    if costs is None:
        return list(batch)
    count = 0
    rows, left_s = 0, float("inf")
    for number, entry in enumerate(batch, 1):
        rows += entry.request.rows
        left_s = min(left_s, costs.left_s(entry))
        if costs.of_rows(rows) > left_s:
            break
        count = number
    return list(batch[: max(1, count)])


def late_already(model: ModelRecord, batch: Sequence[Entry], now: float) -> list[Late]:
    """Who leaves the place in the next run to others; that is then formed anew. batch: as it would be."""
    costs = _Costs.of(model, batch, now)
    if costs is None:
        return []
    remember(model)
    late = [costs.late(entry, own_s) for entry in batch if costs.left_s(entry) < (own_s := costs.alone(entry))]
    rows = sum(entry.request.rows for entry in batch)
    if late or not costs.late_for(rows, batch):
        return late
    return _left_out(costs, rows, _like(batch[0], model.queue))


def _left_out(costs: "_Costs", most_rows: int, waiting: Sequence[Entry]) -> list[Late]:
    """Who comes too late by the run that answers most, if that is not only of lower priority."""
    best: list[Entry] = []
    best_rows, rows = 0, most_rows
    for size in _halves(most_rows):
        computed = costs.computed_by(size, waiting)
        count = sum(entry.request.rows for entry in computed)
        if count > best_rows:
            best, best_rows, rows = computed, count, size
    if not best:
        return []
    run_s, last = costs.of_rows(rows), waiting.index(best[-1])
    highest = min(entry.priority for entry in best)
    late = costs.late_for(rows, waiting[: last + 1])
    return [costs.late(entry, run_s) for entry in late if entry.priority >= highest]


def _halves(rows: int) -> Iterable[int]:
    while rows:
        yield rows
        rows //= 2


def _like(first: Entry, waiting: Iterable[Entry]) -> list[Entry]:
    """Those at the head of the queue who could be in one run with its first."""
    key, cohort = first.request.batch_key, first.cohort
    looked_at = islice(waiting, _MOST_LOOKED_AT)
    if key is None:
        return list(takewhile(lambda entry: entry is first, looked_at))
    return [entry for entry in looked_at if entry.cohort == cohort and entry.request.batch_key == key]


@dataclass(frozen=True, slots=True)
class _Costs:
    """What runs of a model take at least, and what is left to those who wait. row_bytes: of a row of the next one."""

    model: ModelRecord
    row_bytes: int
    now: float

    @classmethod
    def of(cls, model: ModelRecord, batch: Sequence[Entry], now: float) -> "_Costs | None":
        """None where nothing is known that counts."""
        if not batch or not is_known(model, now):
            return None
        return cls(model, row_bytes_of(batch) if model.rows_vary else 0, now)

    def of_rows(self, rows: int) -> float:
        seconds = self.model.seconds
        return seconds.least_s(rows, self.row_bytes, self.now) if self.model.rows_vary else seconds.expected_s(rows)

    def alone(self, entry: Entry) -> float:
        request, seconds = entry.request, self.model.seconds
        if not self.model.rows_vary:
            return seconds.expected_s(request.rows)
        return seconds.least_s(request.rows, request.row_bytes, self.now)

    def left_s(self, entry: Entry) -> float:
        """For a run."""
        request = entry.request
        return request.deadline_s - self.now - answer_s(request)

    def late_for(self, rows: int, entries: Iterable[Entry]) -> list[Entry]:
        run_s = self.of_rows(rows)
        return [entry for entry in entries if self.left_s(entry) < run_s]

    def computed_by(self, rows: int, waiting: Iterable[Entry]) -> list[Entry]:
        """Those whom a run of so many rows would answer in time."""
        run_s, room = self.of_rows(rows), rows
        computed: list[Entry] = []
        for entry in waiting:
            if self.left_s(entry) < run_s:
                continue
            room -= entry.request.rows
            if room < 0:
                break
            computed.append(entry)
        return computed

    def late(self, entry: Entry, run_s: float) -> Late:
        request = entry.request
        needed = TimeNeeded(0.0, 0.0, run_s, answer_s(request))
        return entry, DeadlineUnmeetable(self.now - request.arrived_s, request.deadline_s - self.now, needed)
