"""The world round the scheduling core, at no cost of its own: whatever is asked of a worker has happened at once."""

from pathlib import PurePath

from moorage.domain.model import MemoryPolicy, ModelKey, ModelSpec, QueuePolicy
from moorage.domain.request import InferenceRequest, RunResult
from moorage.scheduling.actions import Action, Execute, Load, Offload, Restore, StartWorker
from moorage.scheduling.events import (
    Event,
    LoadRequested,
    ModelLoaded,
    ModelOffloaded,
    ModelRegistered,
    ModelRestored,
    RequestsArrived,
    RunFinished,
    WorkerUp,
)
from moorage.scheduling.scheduler import Scheduler
from moorage.scheduling.state import DeviceLimits, Limits

RESULT = RunResult(outputs=(), input_ns=0, infer_ns=0, output_ns=0)
WEIGHTS_BYTES = 1 << 30
PLENTY_BYTES = 1 << 50
TICK_S = 1e-6  # the clock moves on by this with every event
DEADLINE_S = 30.0


class World:
    """A scheduler and all that it acts on. Its models are registered, asked for, and in memory as far as they fit.

    fitting: models that there is memory for, over all devices, each of which gets its part; 0: for all. Devices have
    one run slot each. evictions: so far.
    """

    def __init__(
        self,
        *,
        models: int = 1,
        devices: int = 1,
        workspace_bytes: int = 0,
        max_batch_size: int = 1,
        fitting: int = 0,
    ) -> None:
        capacity_bytes = fitting * WEIGHTS_BYTES // devices if fitting else PLENTY_BYTES
        limits = DeviceLimits(capacity_bytes, host_bytes=PLENTY_BYTES)
        # With no time that a model stays at least, every request of one that is out may put another out.
        self.scheduler = Scheduler({f"cuda:{n}": limits for n in range(devices)}, Limits(min_residency_s=0.0))
        self.slots = devices
        self.evictions = 0
        self._now_s = 0.0
        self._last_id = 0
        self._running: list[int] = []
        self._keys = [ModelKey(f"model{number}", 1) for number in range(models)]
        for key in self._keys:
            self._send(ModelRegistered(key, _spec(key, workspace_bytes, max_batch_size)))
            self._send(LoadRequested(key))

    def requests(self, count: int) -> list[InferenceRequest]:
        """Round robin over the models."""
        first = self._last_id + 1
        self._last_id += count
        return [self._request(request_id) for request_id in range(first, first + count)]

    def _request(self, request_id: int) -> InferenceRequest:
        return InferenceRequest(
            request_id=request_id,
            client_id="",
            model=self._keys[request_id % len(self._keys)],
            inputs=(),
            rows=1,
            size_bytes=64,
            arrived_s=self._now_s,
            deadline_s=self._now_s + DEADLINE_S,
            batch_key="same",
        )

    def arrive(self, request: InferenceRequest) -> None:
        self._send(RequestsArrived((request,)))

    def finish_oldest(self) -> None:
        """End the run that began first. Raises IndexError where nothing runs."""
        self._send(RunFinished(self._running.pop(0), RESULT))

    def finish_all(self) -> None:
        """End runs until nothing runs any more."""
        while self._running:
            self.finish_oldest()

    def _send(self, event: Event) -> None:
        self._now_s += TICK_S
        for action in self.scheduler.handle(event, self._now_s):
            self._perform(action)

    def _perform(self, action: Action) -> None:
        match action:
            case Execute(run):
                self._running.append(run.run_id)
            case StartWorker(worker):
                self._send(WorkerUp(worker))
            case Load(key):
                self._send(ModelLoaded(key, WEIGHTS_BYTES, can_offload=True))
            case Offload(key):
                self.evictions += 1
                self._send(ModelOffloaded(key))
            case Restore(key):
                self._send(ModelRestored(key))


def _spec(key: ModelKey, workspace_bytes: int, max_batch_size: int) -> ModelSpec:
    return ModelSpec(
        name=key.name,
        version=key.version,
        runtime="simulated",
        inputs=(),
        outputs=(),
        path=PurePath(key.name),
        max_batch_size=max_batch_size,
        memory=MemoryPolicy(weights_bytes=WEIGHTS_BYTES, workspace_per_row_bytes=workspace_bytes),
        queue=QueuePolicy(max_rows=1 << 40, max_bytes=1 << 40),
    )
