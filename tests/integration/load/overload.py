"""Three times as much comes as can be done, from 100 clients that wait a second each. By hand, for a minute:

python -m tests.integration.load.overload [SECONDS]

Exit code 1 where anything is not as it should be.
"""

import asyncio
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil

from moorage_client import SyncClient
from moorage_client.channels import Methods
from tests.integration.load.callers import Answered, call, channels, closed_loop
from tests.support.calls import Calls, calls_to, output_of, request_of, rows_of
from tests.support.polling import eventually
from tests.support.running_server import RunningServer, running_server
from tests.support.toy_models import write_python_model

MODEL = "works"
CLIENTS = 100
WITHIN_S = 1.0
TIMES = 3.0
MOST_ROWS = 16
# Of the requests: few are urgent, as who is urgent can be only a few.
PRIORITIES = (1, 3, 3, 3, 4, 5, 5, 5, 5, 5)
LEAST_GOODPUT = 0.9
# The bound of the model's queue, which is the default. A request has one row.
MOST_WAITING_ROWS = 256
# How much later than its caller's deadline a request may begin. Usually the last one begins 50 ms before it. But gRPC
# sends how many seconds are left, which count from when the server hears of the call: of the time on its way there,
# between two busy processes, the server knows nothing.
_ON_THE_WAY_S = 0.05
_RECOVERED_WITHIN_S = 1.0
_MOST_GROWTH_BYTES = 64 * 2**20
_CAPACITY_S = 4.0

# Takes 40 ms and 1 ms for each row. Counts the rows whose deadline, which is in the row, had passed when their run
# began by more than a request may have been on its way; and by how much the latest of all had.
_WORKS = """
    import time
    from moorage import Model

    class Works(Model):
        def load(self, context):
            self.epoch_s = context.parameters["epoch_s"]
            self.on_the_way_s = context.parameters["on_the_way_s"]
            self.expired, self.latest_s = 0, -1000.0

        def infer(self, inputs, batch):
            x = inputs["x"].clone()
            late_s = time.monotonic() - self.epoch_s - x[:, 1]
            self.expired += int((late_s > self.on_the_way_s).sum())
            self.latest_s = max(self.latest_s, float(late_s.max()))
            time.sleep(0.040 + 0.001 * batch.rows)
            x[:, 2] = self.expired
            x[:, 3] = self.latest_s
            return {"y": x}
"""


@dataclass(frozen=True)
class Outcome:
    """What a trial showed.

    capacity_per_s: answers per second of callers in closed loops, as many as fill each run. answers: of the flood, that
    lasted for seconds. expired: requests that were computed though their deadline had passed. latest_s: by how much it
    had passed at most, less than 0 where it was still to come. after: one request, sent as soon as the flood had ended.
    grown_bytes: of the server's resident memory. waiting_rows: the most that was seen.
    """

    capacity_per_s: float
    seconds: float
    answers: Sequence[Answered]
    expired: int
    latest_s: float
    after: Answered
    grown_bytes: int
    waiting_rows: int

    @property
    def goodput(self) -> float:
        """Answers in time, of what could be done."""
        served = sum(answer.code == "OK" and answer.took_s <= WITHIN_S for answer in self.answers)
        return served / self.seconds / self.capacity_per_s

    @property
    def offered(self) -> float:
        return len(self.answers) / self.seconds / self.capacity_per_s

    @property
    def urgent_p99_s(self) -> float:
        """Of all requests of priority 1, those that were refused among them as endless."""
        took_s = [answer.took_s if answer.code == "OK" else np.inf for answer in self.answers if answer.priority == 1]
        return float(np.quantile(took_s, 0.99, method="lower"))

    @property
    def faults(self) -> list[str]:
        """What is not as it should be."""
        codes = {answer.code for answer in self.answers}
        told = {
            f"goodput is {self.goodput:.2f} of capacity": self.goodput < LEAST_GOODPUT,
            f"only {self.offered:.2f} times the capacity came": self.offered < 0.8 * TIMES,
            f"{self.expired} requests were computed after their deadline": self.expired > 0,
            f"p99 of priority 1 is {self.urgent_p99_s:.3f} s": self.urgent_p99_s > WITHIN_S,
            f"it took {self.after.took_s:.2f} s to recover, {self.after.code}": self.after.code != "OK"
            or self.after.took_s > _RECOVERED_WITHIN_S,
            f"{self.waiting_rows} rows waited": not 0 < self.waiting_rows <= MOST_WAITING_ROWS,
            f"the server grew by {self.grown_bytes} bytes": self.grown_bytes > _MOST_GROWTH_BYTES,
            f"requests ended as {codes}": not codes <= {"OK", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED"},
        }
        return [fault for fault, is_so in told.items() if is_so]

    def __str__(self) -> str:
        codes = Counter(answer.code for answer in self.answers)
        return (
            f"capacity {self.capacity_per_s:.0f}/s, offered {self.offered:.2f} times that, goodput {self.goodput:.3f}; "
            f"priority 1 p99 {self.urgent_p99_s * 1000:.0f} ms; {self.expired} computed too late, "
            f"the latest began {self.latest_s * 1000:.0f} ms after its deadline; {dict(codes)}; "
            f"at most {self.waiting_rows} rows waited, the server grew by {self.grown_bytes / 2**20:.1f} MiB; "
            f"{self.after.took_s * 1000:.0f} ms after its end an answer"
        )


def measure(folder: Path, seconds: float) -> Outcome:
    """Serve, find the capacity, flood, and see."""
    epoch_s = time.monotonic()
    extra = f"[parameters]\nepoch_s = {epoch_s}\non_the_way_s = {_ON_THE_WAY_S}\n"
    write_python_model(folder / "models", MODEL, _WORKS, max_batch_size=MOST_ROWS, extra=extra)
    environment = {"MOORAGE_SERVER__CHECK_INTEGRITY": "false"}
    with running_server(folder / "models", folder, environment=environment) as server, calls_to(server.grpc) as calls:
        eventually(calls.is_ready, within_s=50.0, what="the server is ready")
        return asyncio.run(_measure(server, calls, epoch_s, seconds))


async def _measure(server: RunningServer, calls: Calls, epoch_s: float, seconds: float) -> Outcome:
    process = psutil.Process(server.pid)
    async with channels(server.grpc, CLIENTS) as opened:
        capacity_per_s = await _capacity(opened)
        base_bytes, most_rows = process.memory_info().rss, 0
        flood = asyncio.create_task(_flood(opened, epoch_s, TIMES * capacity_per_s, seconds))
        while not flood.done():
            await asyncio.sleep(0.25)
            most_rows = max(most_rows, await asyncio.to_thread(_waiting_rows, server))
        answers = await flood
        after = await call(opened[0], request_of(MODEL, rows_of(1e9)), 30.0)
        grown_bytes = process.memory_info().rss - base_bytes
    _, _, expired, latest_s = output_of(calls.infer(request_of(MODEL, rows_of(1e9))))[0].tolist()
    return Outcome(capacity_per_s, seconds, answers, int(expired), latest_s, after, grown_bytes, most_rows)


def _waiting_rows(server: RunningServer) -> int:
    with SyncClient(server.grpc) as client:
        return sum(model.waiting_rows for model in client.snapshot().models)


async def _capacity(opened: Sequence[Methods]) -> float:
    """Answers per second where every run is full and nobody has a deadline that matters."""
    until_s = time.monotonic() + _CAPACITY_S
    loops = [closed_loop(methods, MODEL, until_s) for methods in opened[: 3 * MOST_ROWS]]
    answers = [answer for each in await asyncio.gather(*loops) for answer in each]
    late = [answer for answer in answers if answer.ended_s > until_s - _CAPACITY_S / 2]
    return len(late) / (max(answer.ended_s for answer in late) - (until_s - _CAPACITY_S / 2))


async def _flood(opened: Sequence[Methods], epoch_s: float, per_s: float, seconds: float) -> list[Answered]:
    """Requests at so many per second, in turn from all clients, whatever becomes of those before."""
    chance, began_s = random.Random(1), time.monotonic()
    under_way: list[asyncio.Task[Answered]] = []
    for number in range(int(per_s * seconds)):
        delay_s = began_s + number / per_s - time.monotonic()
        if delay_s > 0:
            await asyncio.sleep(delay_s)
        one = _one(opened[number % len(opened)], epoch_s, chance.choice(PRIORITIES))
        under_way.append(asyncio.create_task(one))
    return await asyncio.gather(*under_way)


async def _one(methods: Methods, epoch_s: float, priority: int) -> Answered:
    """A request that says in its row when its deadline is."""
    deadline_s = time.monotonic() + WITHIN_S - epoch_s
    request = request_of(MODEL, rows_of(deadline_s), parameters={"priority": priority})
    return await call(methods, request, WITHIN_S, priority)


def main() -> int:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    with tempfile.TemporaryDirectory() as folder:
        outcome = measure(Path(folder), seconds)
    sys.stdout.write(f"{outcome}\n")
    for fault in outcome.faults:
        sys.stdout.write(f"  {fault}\n")
    return int(bool(outcome.faults))


if __name__ == "__main__":
    sys.exit(main())
