"""What the scheduling core costs per request, in microseconds: `python benchmarks/scheduler_core.py`.

One request is arrive -> Execute -> RunFinished -> Succeed, with some models resident and some requests waiting.
"""

import gc
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import PurePath

from moorage.domain.model import MemoryPolicy, ModelKey, ModelSpec, QueuePolicy
from moorage.domain.request import InferenceRequest, RunResult
from moorage.scheduling.actions import Action, Execute, Load, StartWorker
from moorage.scheduling.events import (
    Event,
    LoadRequested,
    ModelLoaded,
    ModelRegistered,
    RequestsArrived,
    RunFinished,
    WorkerUp,
)
from moorage.scheduling.scheduler import Scheduler
from moorage.scheduling.state import DeviceLimits

REQUESTS = 50_000
REPEATS = 3
RESULT = RunResult(outputs=(), input_ns=0, infer_ns=0, output_ns=0)


class Bench:
    """A scheduler whose worker answers at once, with one clock tick for every event."""

    def __init__(self, models: int, workspace_bytes: int = 0, max_batch_size: int = 1) -> None:
        self.scheduler = Scheduler({"cpu": DeviceLimits(10 << 40)})
        self.now = 0.0
        self.ids = iter(range(1, 1 << 62))
        self.keys = [ModelKey(f"model{number}", 1) for number in range(models)]
        self.running: list[int] = []
        for key in self.keys:
            self.send(ModelRegistered(key, _spec(key, workspace_bytes, max_batch_size)))
            self.send(LoadRequested(key))

    def send(self, event: Event) -> None:
        self.now += 1e-6
        for action in self.scheduler.handle(event, self.now):
            self._answer(action)

    def _answer(self, action: Action) -> None:
        match action:
            case StartWorker(worker):
                self.send(WorkerUp(worker))
            case Load(key):
                self.send(ModelLoaded(key, 1))
            case Execute(run):
                self.running.append(run.run_id)

    def requests(self, count: int) -> list[InferenceRequest]:
        """Round robin over the models."""
        return [
            InferenceRequest(
                request_id=next(self.ids),
                client_id="",
                model=self.keys[number % len(self.keys)],
                inputs=(),
                rows=1,
                size_bytes=64,
                arrived_s=self.now,
                deadline_s=self.now + 30.0,
                batch_key="same",
            )
            for number in range(count)
        ]

    def finish_all(self) -> None:
        running, self.running = self.running, []
        for run_id in running:
            self.send(RunFinished(run_id, RESULT))

    def serve_each(self, requests: Iterable[InferenceRequest]) -> None:
        """Answer every request before the next arrives."""
        for request in requests:
            self.send(RequestsArrived((request,)))
            self.finish_all()

    def keep_waiting(self, requests: Iterable[InferenceRequest]) -> None:
        """One more arrives for each that is answered, so that as many wait as before."""
        for request in requests:
            self.send(RequestsArrived((request,)))
            self.send(RunFinished(self.running.pop(0), RESULT))


def _spec(key: ModelKey, workspace_bytes: int, max_batch_size: int) -> ModelSpec:
    return ModelSpec(
        name=key.name,
        version=key.version,
        runtime="simulated",
        inputs=(),
        outputs=(),
        path=PurePath(key.name),
        max_batch_size=max_batch_size,
        memory=MemoryPolicy(weights_bytes=1, workspace_per_row_bytes=workspace_bytes),
        queue=QueuePolicy(max_rows=1 << 40, max_bytes=1 << 40),
    )


def _cases() -> Iterator[tuple[str, float]]:
    for models in (1, 10, 1000):
        for workspace_bytes in (0, 1 << 20):
            bench = Bench(models, workspace_bytes)
            what = f"{models:>5} models, none waiting{', workspace' if workspace_bytes else ''}"
            yield what, _best(bench, bench.serve_each)
    for models in (1, 10, 1000):
        bench = Bench(models)
        for request in bench.requests(10_000 + models):
            bench.send(RequestsArrived((request,)))
        yield f"{models:>5} models, 10,000 waiting", _best(bench, bench.keep_waiting)
    bench = Bench(1, max_batch_size=32)
    yield "    1 model, in batches of 32", _best(bench, lambda requests: _in_batches(bench, requests))


def _in_batches(bench: Bench, requests: Iterable[InferenceRequest]) -> None:
    for number, request in enumerate(requests, start=1):
        bench.send(RequestsArrived((request,)))
        if number % 32 == 0:
            bench.finish_all()


def _best(bench: Bench, serve: Callable[[Iterable[InferenceRequest]], None]) -> float:
    """Microseconds per request, of the fastest of some tries."""
    took_s = []
    for _ in range(REPEATS):
        requests = bench.requests(REQUESTS)
        gc.collect()
        before_s = time.perf_counter()
        serve(requests)
        took_s.append(time.perf_counter() - before_s)
    return min(took_s) / REQUESTS * 1e6


def main() -> None:
    for what, cost_us in _cases():
        print(f"{what:<45} {cost_us:6.2f} us per request")


if __name__ == "__main__":
    main()
