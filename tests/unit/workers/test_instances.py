"""A model's instances in a worker: lanes and threads of their own over one load, each on its own CUDA stream."""

import asyncio
import dataclasses
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import psutil
import pytest

from moorage.domain.model import ModelKey, ModelSpec, SimulatedCosts, WarmupInput, WarmupRun
from moorage.domain.request import InferenceRequest
from moorage.domain.tensor import Datatype, InputTensor
from moorage.scheduling.actions import Run
from moorage.scheduling.budget import Lease, LeaseKind
from moorage.scheduling.entries import Entry
from moorage.scheduling.events import ModelLoadFailed, ModelUnloaded, RunFinished
from moorage.workers import segment
from moorage.workers.child import lane
from moorage.workers.child.building import Built
from moorage.workers.child.caches import Caches
from moorage.workers.child.failures import Refusal
from moorage.workers.child.gauges import Gauges, LaneGauge
from moorage.workers.child.lane import LaneHandles, LaneThread
from moorage.workers.child.memory import take_own_stream, wait_for_device, wait_for_stream
from moorage.workers.runtimes import BrokenContract, RuntimeOptions
from moorage.workers.runtimes.simulated import SimulatedRuntime
from tests.support.one_worker import NAME, OneWorker, python_spec, spec_of, with_worker
from tests.support.toy_models import ECHO

X = WarmupInput("x", Datatype.FP32, (4,), values=(1, 2, 3, 4))
KEY = ModelKey("model", 1)

# Answers with how often it was loaded, its runs so far, and of how many threads they came; and fails where it is told.
THREADS = """
    import threading
    import torch
    from moorage import Model

    class Threads(Model):
        loads = 0

        def load(self, context):
            Threads.loads += 1
            self.seen = []

        def infer(self, inputs, batch):
            self.seen.append(threading.get_ident())
            if len(self.seen) == FAILS_AT:
                raise KeyError("no such row")
            y = inputs["x"].clone()
            y[:, 0], y[:, 1], y[:, 2] = Threads.loads, len(self.seen), len(set(self.seen))
            return {"y": y}
"""


def threads_spec(folder: Path, instances: int, *, fails_at: int = 0) -> ModelSpec:
    spec = python_spec(folder, "model", THREADS.replace("FAILS_AT", str(fails_at)))
    return dataclasses.replace(spec, instances=instances, warmup=(WarmupRun(2, 2, (X,)),))


def test_every_instance_warms_up_on_its_own_thread_over_one_load(tmp_path: Path) -> None:
    async def use(worker: OneWorker) -> None:
        await worker.load(threads_spec(tmp_path, 3))
        answer = await worker.answer("model", np.zeros((1, 4), np.float32))
        assert answer.tolist() == [1, 7, 3, 0]

    with_worker(use)


@pytest.mark.parametrize("fails_at", [1, 3, 6])
def test_whichever_fails_the_model_is_refused_and_no_thread_of_it_is_left(tmp_path: Path, fails_at: int) -> None:
    async def use(worker: OneWorker) -> None:
        threads = psutil.Process(worker.pool.pids[NAME]).num_threads
        spec = threads_spec(tmp_path, 3, fails_at=fails_at)
        before = 0
        for _ in range(2):
            worker.pool.load(NAME, KEY, spec)
            failed = await worker.next(ModelLoadFailed)
            assert str(failed.error) == "failed to load model 'model': warmup[0] failed: KeyError: 'no such row'"
            assert threads() <= (before or threads())
            before = threads()

    with_worker(use)


# Its worker has enough for one instance, and then refuses what is named; until it goes.
CRAMPED = """
    import errno
    import mmap
    import threading
    from moorage import Model

    class Cramped(Model):
        def load(self, context):
            self.given, self.real = 0, OWNER.NAME

            def refuses_the_second(*arguments):
                self.given += 1
                if self.given == 2:
                    raise OSError(errno.ENOMEM, "Cannot allocate memory")
                return self.real(*arguments)

            OWNER.NAME = refuses_the_second

        def infer(self, inputs, batch):
            return {"y": inputs["x"]}

        def unload(self):
            OWNER.NAME = self.real
"""


@pytest.mark.parametrize(("owner", "name"), [("mmap", "mmap"), ("threading.Thread", "start")])
def test_a_worker_that_has_no_more_for_a_lane_refuses_the_model_and_serves_the_others(
    tmp_path: Path, owner: str, name: str
) -> None:
    async def use(worker: OneWorker) -> None:
        await worker.load(python_spec(tmp_path, "echo", ECHO))
        process = psutil.Process(worker.pool.pids[NAME])
        before = process.num_fds(), process.num_threads()
        code = CRAMPED.replace("OWNER", owner).replace("NAME", name)
        spec = dataclasses.replace(python_spec(tmp_path, "cramped", code), instances=3)
        worker.pool.load(NAME, ModelKey("cramped", 1), spec)
        failed = await worker.next(ModelLoadFailed)
        assert str(failed.error) == "failed to load model 'cramped': OSError: Cannot allocate memory"
        assert (await worker.answer("echo", np.ones((1, 4), np.float32))).tolist() == [1, 1, 1, 1]
        for _ in range(100):
            if (process.num_fds(), process.num_threads()) <= before:
                break
            await asyncio.sleep(0.05)
        else:
            pytest.fail("its lanes are still open")

    with_worker(use)


def test_runs_of_different_instances_go_on_at_once(tmp_path: Path) -> None:
    async def use(worker: OneWorker) -> None:
        spec = dataclasses.replace(
            spec_of(tmp_path, "model", "simulated"), instances=2, simulated=SimulatedCosts(run_s=0.4)
        )
        await worker.load(spec)
        began_s = time.monotonic()
        for instance in (0, 1):
            tensor = InputTensor("x", Datatype.FP32, (1, 4), bytes(16))
            request = InferenceRequest(instance, "", KEY, (tensor,), 1, 16, 0.0, 1000.0)
            lease = Lease(NAME, str(KEY), LeaseKind.WORKSPACE, 0)
            run = Run(instance, KEY, NAME, (Entry(request),), 1, lease, 0.0, instance=instance)
            worker.pool.execute(run)
        finished = {(await worker.next(RunFinished)).run_id for _ in range(2)}
        assert finished == {0, 1}
        assert time.monotonic() - began_s < 0.75
        worker.pool.unload(NAME, KEY)
        assert (await worker.next(ModelUnloaded)).retained_bytes == 0

    with_worker(use)


def test_a_stepped_model_has_one() -> None:
    SimulatedRuntime(RuntimeOptions((), (), True, steps=2))
    SimulatedRuntime(RuntimeOptions((), (), True, instances=2))
    with pytest.raises(BrokenContract, match=r"instances: expected 1 of a stepped model, .* got 2"):
        SimulatedRuntime(RuntimeOptions((), (), True, steps=2, instances=2))


class FakeCuda:
    """What is asked of torch.cuda, in words."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.current = "default"

    def is_available(self) -> bool:
        return True

    def is_initialized(self) -> bool:
        return True

    def Stream(self, device: str, priority: int) -> str:  # noqa: N802 - torch's name
        return f"stream of {device}, {priority}"

    def set_stream(self, stream: str) -> None:
        self.current = stream

    def current_stream(self, device: str) -> SimpleNamespace:
        return SimpleNamespace(synchronize=lambda: self.asked.append(f"wait for {self.current}"))

    def synchronize(self, device: str) -> None:
        self.asked.append(f"wait for {device}")


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    fake = FakeCuda()
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=fake))
    return fake


@pytest.mark.parametrize(("urgent", "stream"), [(False, "stream of cuda:1, 0"), (True, "stream of cuda:1, -1")])
def test_a_run_is_waited_for_on_its_own_stream_alone(cuda: FakeCuda, urgent: bool, stream: str) -> None:
    take_own_stream("cuda:1", urgent=urgent)
    wait_for_stream("cuda:1")
    wait_for_device("cuda:1")
    assert cuda.asked == [f"wait for {stream}", "wait for cuda:1"]


def test_a_cpu_has_no_streams(cuda: FakeCuda) -> None:
    take_own_stream("cpu", urgent=True)
    wait_for_stream("cpu")
    wait_for_device("cpu")
    assert (cuda.asked, cuda.current) == ([], "default")


@pytest.mark.parametrize("wait", [wait_for_stream, wait_for_device])
def test_nor_has_a_process_without_torch(wait: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    take_own_stream("cuda:0", urgent=False)
    wait("cuda:0")


def test_a_device_that_gives_no_stream_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(device: str, *, urgent: bool) -> None:
        raise RuntimeError("CUDA error: out of memory")

    monkeypatch.setattr(lane, "take_own_stream", fails)
    ours, theirs = socket.socketpair()
    built = Built(SimulatedRuntime(RuntimeOptions((), (), True)), {}, {}, True, "cuda:0")
    gauge = LaneGauge(Gauges(None), measures_all=False)
    handles = LaneHandles(theirs, segment.create())
    thread = LaneThread(KEY, built, handles, Caches("cuda:0", lambda message: None), gauge)
    with ours, theirs:
        refusal = thread.open((), Path())
        thread.finish()
    assert isinstance(refusal, Refusal)
    assert refusal.reason == "RuntimeError: CUDA error: out of memory"
    assert not thread.is_alive()
