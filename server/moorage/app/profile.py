"""Profiles: what runs of a model take, by how many rows they have, measured on a server of its own."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any, TypeVar

from moorage.app.one_model import MeasuredRun, OneModel, serving_one
from moorage.config import Settings
from moorage.domain.model import MemoryPolicy, ModelSpec, ProfiledRun
from moorage.scheduling.workspaces import MARGIN, Workspaces
from moorage_client import Client, ModelMetadata

Sample = TypeVar("Sample")

# Of each size, one in each round, so that all of them come after runs of other sizes. The first is left out: what it
# makes for itself is there for those that come after it.
_ROUNDS = 11
# Up to so many rows sizes between the powers of two are profiled too: there what a run takes is no straight line.
_FINE_ROWS = 128


class NotMeasured(Exception):
    """This machine does not tell what a run takes."""


@dataclass(frozen=True, slots=True)
class Check:
    """A run of a size that was not profiled, and what the profile says of it. error: by what part that is more."""

    run: ProfiledRun
    foreseen_bytes: int

    @property
    def error(self) -> float:
        return (self.foreseen_bytes - self.run.peak_bytes) / max(1, self.run.peak_bytes)


@dataclass(frozen=True, slots=True)
class Limit:
    """How many rows of this size a run may have: weights, context, and the margin times fixed_bytes and per_row_bytes
    for each row fit the budget. None where memory sets no limit."""

    row_bytes: int
    most_rows: int | None
    fixed_bytes: int
    per_row_bytes: int


@dataclass(frozen=True, slots=True)
class Profile:
    """What was measured of one version of a model on one device."""

    spec: ModelSpec
    device: str
    weights_bytes: int
    context_bytes: int
    budget_bytes: int
    runs: tuple[ProfiledRun, ...]
    checks: tuple[Check, ...]
    margin: float = MARGIN

    @property
    def limits(self) -> tuple[Limit, ...]:
        """One for each size of row."""
        return tuple(self._limit(row_bytes) for row_bytes in sorted({run.row_bytes for run in self.runs}))

    def _limit(self, row_bytes: int) -> Limit:
        room_bytes = (self.budget_bytes - self.weights_bytes - self.context_bytes) / self.margin
        runs = sorted((run for run in self.runs if run.row_bytes == row_bytes), key=lambda run: run.rows)
        last, before = runs[-1], runs[-2] if len(runs) > 1 else None
        slope = last.peak_bytes / last.rows
        if before is not None:
            slope = max(0.0, (last.peak_bytes - before.peak_bytes) / (last.rows - before.rows))
        fixed_bytes = max(0.0, last.peak_bytes - slope * last.rows)
        most_rows = int((room_bytes - fixed_bytes) / slope) if slope > 0 else None
        return Limit(row_bytes, most_rows if most_rows is None else max(0, most_rows), int(fixed_bytes), int(slope))


async def take_profile(
    settings: Settings,
    name: str,
    version: str,
    samples: Callable[[ModelMetadata, ModelSpec], Sequence[Sample]],
    with_rows: Callable[[Sample, int], Mapping[str, Any]],
) -> Profile:
    """Serve one model alone, and run it with samples of ever more rows.

    samples: from what the model takes, and all that is declared of it. with_rows: a request of so many rows of one.
    Raises what serving_one raises, MoorageClientError where a run fails, and NotMeasured. Cancellation ends the server.
    """
    async with serving_one(settings, name, version) as session, Client(session.server.started.grpc_address) as client:
        spec = session.spec
        if spec.decoupled:
            raise NotMeasured(f"model '{name}' is decoupled: what its requests take depends on how often it answers")
        metadata = await client.metadata(name, str(spec.version))
        chosen = samples(metadata, spec)
        await client.load(name)
        runs: list[ProfiledRun] = []
        between: list[ProfiledRun] = []
        profiled, checking = sizes(max(1, spec.max_batch_size))
        for sample in chosen:
            given: dict[int, Any] = {1: sample}
            if spec.max_batch_size:
                given = {rows: with_rows(sample, rows) for rows in profiled + checking}
            measured = await _measure(session, client, given)
            runs += [measured[rows] for rows in profiled]
            between += [measured[rows] for rows in checking]
        snapshot = await client.snapshot()
        (model,) = (status for status in snapshot.models if status.name == name)
        (device,) = (status for status in snapshot.devices if status.name == model.device)
    workspaces = Workspaces(MemoryPolicy(), tuple(runs))
    checks = (Check(run, round(workspaces.expected_bytes(run.rows, run.row_bytes))) for run in between)
    return Profile(
        spec,
        model.device,
        model.leased_bytes.get("weights", 0),
        device.leased_bytes.get("context", 0),
        device.configured_bytes,
        tuple(runs),
        tuple(checks),
    )


async def _measure(session: OneModel, client: Client, given: Mapping[int, Mapping[str, Any]]) -> dict[int, ProfiledRun]:
    """Runs of all these rows, round after round: the most that those of a size took, and the median of their seconds.

    Raises NotMeasured.
    """
    found: dict[int, list[MeasuredRun]] = {rows: [] for rows in given}
    for number in range(_ROUNDS):
        for rows in sorted(given, reverse=number % 2 > 0):
            del session.runs[:]
            await client.infer(session.spec.name, given[rows], version=str(session.spec.version))
            if number:
                found[rows] += session.runs
    return {rows: _profiled(rows, of_size) for rows, of_size in found.items()}


def _profiled(rows: int, found: Sequence[MeasuredRun]) -> ProfiledRun:
    if not found:
        raise NotMeasured(f"a run of {rows} rows found no memory on the model's device, and was computed on another")
    peaks = [run.peak_bytes for run in found if run.peak_bytes is not None]
    if not peaks:
        raise NotMeasured(f"no run of {rows} rows could be measured: the system does not tell what a process takes")
    reserved = [run.reserved_bytes for run in found if run.reserved_bytes is not None]
    # To measure main memory takes time.
    timed = [run for run in found if run.peak_bytes is None] or found
    seconds = median(run.seconds for run in timed)
    return ProfiledRun(rows, found[0].row_bytes, max(peaks), max(reserved, default=None), seconds)


def sizes(most_rows: int) -> tuple[list[int], list[int]]:
    """The rows of runs to profile, and of runs between them to check the profile by."""
    profiled = sorted(set(_profiled_sizes(most_rows)))
    between = [(low + high) // 2 for low, high in pairwise(profiled)]
    return profiled, [rows for rows in between if rows not in profiled]


def _profiled_sizes(most_rows: int) -> Iterator[int]:
    rows = 1
    while rows < most_rows:
        yield rows
        if rows > 1 and rows * 3 // 2 < min(most_rows, _FINE_ROWS):
            yield rows * 3 // 2
        rows *= 2
    yield most_rows
