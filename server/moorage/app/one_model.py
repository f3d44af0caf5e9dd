"""A server of one model whose every run is measured, for `moorage profile`."""

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace

from moorage.app.serving import Server, serving
from moorage.config import Address, Settings
from moorage.domain.errors import ModelNotFound
from moorage.domain.model import Loading, ModelSpec
from moorage.repository.disk import DiskRepository
from moorage.scheduling.actions import Action, Execute, Run
from moorage.scheduling.events import Event, RunFinished, StepFinished


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """A run, or a step of a stepped model. row_bytes: of its inputs, the largest row; 0 for a step.

    peak_bytes, reserved_bytes: see RunResult.
    """

    rows: int
    row_bytes: int
    peak_bytes: int | None
    reserved_bytes: int | None
    seconds: float


class _OnlyThis:
    """A repository in which there is but one version of one model, and nothing is loaded before it is asked for."""

    def __init__(self, repository: DiskRepository, name: str, version: str) -> None:
        self._repository = repository
        self._name = name
        self._version = version

    def scan(self) -> tuple[tuple[ModelSpec, ...], dict[str, str]]:
        return self.scan_model(self._name), {}

    def scan_model(self, name: str) -> tuple[ModelSpec, ...]:
        specs = self._repository.scan_model(self._name)
        wanted = self._version or str(specs[-1].version)
        chosen = [spec for spec in specs if str(spec.version) == wanted]
        if name != self._name or not chosen:
            raise ModelNotFound(name, self._version)
        return tuple(replace(spec, loading=Loading.EXPLICIT, profiles={}, fallback="") for spec in chosen)


class _Recorder:
    """Notes every run that ends well, on the model's own device."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.runs: list[MeasuredRun] = []
        self._now = now
        self._begun: dict[int, Run] = {}

    def decided(self, event: Event, decided: Sequence[Action]) -> None:
        if isinstance(event, RunFinished) and event.run_id in self._begun:
            self._ended(event.run_id, event.result.peak_bytes, event.result.reserved_bytes)
        elif isinstance(event, StepFinished) and event.run_id in self._begun:
            self._ended(event.run_id, event.peak_bytes, None)
        for action in decided:
            if isinstance(action, Execute) and not action.run.key.is_understudy:
                self._begun[action.run.run_id] = action.run

    def _ended(self, run_id: int, peak_bytes: int | None, reserved_bytes: int | None) -> None:
        run = self._begun.pop(run_id)
        row_bytes = max(entry.request.row_bytes for entry in run.entries) if run.step is None else 0
        seconds = self._now() - run.started_s
        self.runs.append(MeasuredRun(run.rows, row_bytes, peak_bytes, reserved_bytes, seconds))


@dataclass(frozen=True, slots=True)
class OneModel:
    """A running server, what it serves, and the runs that it has measured so far."""

    server: Server
    spec: ModelSpec
    runs: list[MeasuredRun]


@contextlib.asynccontextmanager
async def serving_one(settings: Settings, name: str, version: str) -> AsyncIterator[OneModel]:
    """Serve one model on any free port of this machine. It is loaded when it is told to.

    version: "" for the latest. Raises OSError, RepositoryError, ModelNotFound, LoadFailed for a folder that is no
    usable model, and InvalidRequest for a name that no model can have.
    """
    quiet = settings.server.model_copy(update={"grpc": Address("127.0.0.1", 0), "http": None, "footprints": None})
    alone = settings.model_copy(update={"server": quiet})
    repository = _OnlyThis(DiskRepository(settings.repository.path), name, version)
    (spec,) = repository.scan_model(name)
    async with serving(alone, repository, measures_all=True) as server:
        recorder = _Recorder(server.engine.now)
        server.engine.observe(recorder.decided)
        yield OneModel(server, spec, recorder.runs)
