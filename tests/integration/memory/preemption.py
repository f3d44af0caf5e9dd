"""Long recordings fill the budget, and urgent requests take room from them. By hand, with recordings of ten minutes:

python -m tests.integration.memory.preemption [short|long [AGEING_S]]

Exit code 1 where anything is not as it should be.
"""

import argparse
import asyncio
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path

import numpy as np
from examples.speech import SAMPLE_RATE_HZ, conversation
from numpy.typing import NDArray

from moorage_client import Client, SyncClient
from tests.integration.memory.preemption_trial import LONG, SHORT, URGENT, VAD, Arrival, Outcome, Phase, Trial
from tests.support.calls import Calls, Tensor, calls_to, output_of, request_of
from tests.support.memory_models import steps_told, write_urgent, write_voice_activity
from tests.support.memory_watch import watching_ledger
from tests.support.polling import eventually
from tests.support.running_server import running_server

RECORDINGS = 3  # different ones
FIRST_ARRIVALS = 10  # urgent requests that aren't counted: the first states to leave need new files
TRIALS = {"short": SHORT, "long": LONG}
MOST_LOST_SHARE = 0.1  # of the throughput, beside what the urgent runs themselves take
_PATIENCE_S = 600.0

Audio = NDArray[np.float32]


def try_preemption(folder: Path, trial: Trial) -> Outcome:
    """Recordings with urgent requests, and without: half of those before and half after, as a machine's pace drifts.

    Raises MoorageClientError where any request fails.
    """
    models, moments = folder / "models", folder / "moments"
    write_voice_activity(
        models, VAD, moments=moments, state_bytes=trial.state_bytes, priority=5, max_preemptions=trial.arrivals
    )
    write_urgent(models, URGENT, workspace_bytes=trial.urgent_bytes)
    variables = {
        "MOORAGE_DEVICES__CPU__RUN_SLOTS": "1",
        "MOORAGE_SERVER__FOOTPRINTS": "off",
        "MOORAGE_SERVER__AGEING_S": f"{trial.ageing_s:g}",
    }
    with (
        running_server(models, folder, budget=f"{trial.budget_bytes} B", environment=variables) as server,
        watching_ledger(server.grpc) as ledger,
        calls_to(server.grpc) as calls,
    ):
        eventually(calls.is_ready, within_s=50.0, what="the server is ready")
        audio = [recording(trial.recording_s, seed) for seed in range(RECORDINGS)]
        with _arriving(calls, replace(trial, arrivals=FIRST_ARRIVALS)):  # the first ones warm everything up
            asyncio.run(_listen(server.grpc, audio, trial.together, trial.together))
        alone = [_ask_urgently(calls) for _ in range(trial.arrivals)]
        with SyncClient(server.grpc) as client:
            before = client.snapshot()
        undisturbed = asyncio.run(_listen(server.grpc, audio, trial.requests // 2, trial.clients))
        with _arriving(calls, trial) as arrivals:
            disturbed = asyncio.run(_listen(server.grpc, audio, trial.requests, trial.clients))
        undisturbed += asyncio.run(_listen(server.grpc, audio, trial.requests - trial.requests // 2, trial.clients))
        with SyncClient(server.grpc) as client:
            last = client.snapshot()
    return Outcome(trial, alone, undisturbed, disturbed, arrivals, steps_told(moments), ledger, (before, last))


async def _listen(target: str, audio: Sequence[Audio], requests: int, clients: int) -> Phase:
    """So many recordings, from clients that send the next one when the last is answered."""
    phase = Phase()
    numbers = islice(cycle(range(len(audio))), requests)
    began_s = time.monotonic()
    async with Client(target, attempts=1) as client, asyncio.TaskGroup() as tasks:
        for _ in range(clients):
            tasks.create_task(_listen_on(client, audio, numbers, phase))
    phase.seconds = time.monotonic() - began_s
    return phase


async def _listen_on(client: Client, audio: Sequence[Audio], numbers: Iterator[int], phase: Phase) -> None:
    for number in numbers:
        outputs = await client.infer(VAD, {"audio": audio[number][None]}, timeout_s=_PATIENCE_S)
        phase.outputs.append((number, outputs["probability"][0].astype(np.float32)))


@contextmanager
def _arriving(calls: Calls, trial: Trial) -> Iterator[list[Arrival]]:
    """Urgent requests for the length of a block, or until all have come: one after the other, so that none waits for
    another of them. They have a connection of their own, or they would wait there behind recordings.
    """
    arrivals: list[Arrival] = []
    leaving = threading.Event()

    def arrive() -> None:
        random = np.random.default_rng(0)
        for gap_s in random.uniform(0.5 * trial.gap_s, 1.5 * trial.gap_s, trial.arrivals):
            if leaving.wait(gap_s):
                return
            arrivals.append(_ask_urgently(calls))

    with ThreadPoolExecutor(1) as thread:
        asking = thread.submit(arrive)
        try:
            yield arrivals
        finally:
            leaving.set()
            asking.result()


def _ask_urgently(calls: Calls) -> Arrival:
    queued_before_s = _queued_s(calls)
    request = request_of(URGENT, Tensor([1, 1], bytes(4)))
    sent_s = time.monotonic()
    response = calls.infer(request, timeout_s=_PATIENCE_S)
    came_s = time.monotonic()
    began_s, ended_s = output_of(response, "<f8")[0].tolist()
    return Arrival(sent_s, began_s, ended_s, came_s, _queued_s(calls) - queued_before_s)


def _queued_s(calls: Calls) -> float:
    """How long all urgent requests have been with the server before their runs."""
    return calls.statistics()[URGENT].inference_stats.queue.ns / 1e9


def recording(seconds: float, seed: int) -> Audio:
    """A conversation that repeats itself, over noise that does not."""
    samples = int(seconds * SAMPLE_RATE_HZ)
    noise = np.random.default_rng(seed).standard_normal(samples, np.float32)
    return np.resize(conversation(seed).audio, samples) + np.float32(0.002) * noise


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.integration.memory.preemption")
    parser.add_argument("trial", nargs="?", choices=TRIALS, default="long")
    parser.add_argument("ageing_s", nargs="?", type=float, help="of the server; its own default otherwise")
    options = parser.parse_args()
    trial = TRIALS[options.trial]
    if options.ageing_s is not None:
        trial = replace(trial, ageing_s=options.ageing_s)
    with tempfile.TemporaryDirectory() as folder:
        outcome = try_preemption(Path(folder), trial)
    problems = outcome.problems(MOST_LOST_SHARE)
    wrong = "".join(f"WRONG: {problem}\n" for problem in problems)
    sys.stdout.write(f"{outcome.report()}\n{wrong or 'all as it should be'}\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
