"""Workers that answer at once, in memory, for tests of the engine alone."""

from collections.abc import Callable

from moorage.domain.model import ModelKey, ModelSpec
from moorage.domain.request import BatchOutput, RunResult
from moorage.domain.tensor import Datatype
from moorage.scheduling.actions import Run
from moorage.scheduling.events import (
    Event,
    ModelLoaded,
    ModelOffloaded,
    ModelRestored,
    ModelUnloaded,
    RunFinished,
    StatesDropped,
    StatesSuspended,
    WorkerLost,
    WorkerUp,
)


class InstantWorkers:
    """Loads and unloads are done at once; runs end when the test says so, with their inputs as outputs."""

    def __init__(self, post: Callable[[Event], None]) -> None:
        self._post = post
        self.runs: list[Run] = []
        self.trimmed: list[Run] = []

    def start(self, name: str, device: str) -> None:
        self._post(WorkerUp(name))

    def stop(self, name: str) -> None:
        self._post(WorkerLost(name, "stopped"))

    def kill(self, name: str, reason: str) -> None:
        self._post(WorkerLost(name, reason))

    def load(self, name: str, key: ModelKey, spec: ModelSpec) -> None:
        self._post(ModelLoaded(key, 0))

    def unload(self, name: str, key: ModelKey) -> None:
        self._post(ModelUnloaded(key))

    def offload(self, name: str, key: ModelKey) -> None:
        self._post(ModelOffloaded(key))

    def restore(self, name: str, key: ModelKey) -> None:
        self._post(ModelRestored(key))

    def suspend(self, name: str, key: ModelKey, request_ids: tuple[int, ...]) -> None:
        self._post(StatesSuspended(key, request_ids))

    def drop(self, name: str, key: ModelKey, request_ids: tuple[int, ...]) -> None:
        self._post(StatesDropped(key, request_ids))

    def execute(self, run: Run) -> None:
        self.runs.append(run)

    def trim(self, run: Run) -> None:
        self.trimmed.append(run)

    def finish(self, run: Run) -> None:
        """Give every member its own input back."""
        parts = [bytes(entry.request.inputs[0].data) for entry in run.entries]
        ends = tuple(sum(map(len, parts[: index + 1])) for index in range(len(parts)))
        output = BatchOutput("y", Datatype.UINT8, (run.rows, 1), memoryview(b"".join(parts)), ends)
        self._post(RunFinished(run.run_id, RunResult((output,), 1, 2, 3)))
