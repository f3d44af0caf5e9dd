"""A worker warms models up as it loads them, on the thread that runs them, and measures them after that."""

import dataclasses
import sys
from pathlib import Path

import pytest

from moorage.domain.model import MemoryPolicy, ModelKey, ModelSpec, SimulatedCosts, WarmupInput, WarmupRun
from moorage.domain.tensor import Datatype
from moorage.scheduling.events import ModelLoaded, ModelLoadFailed, WorkerLost
from tests.support import stepped_worker
from tests.support.one_worker import OneWorker, python_spec, with_worker
from tests.support.stepped_models import RUNNING, code_of
from tests.support.stepped_worker import SteppedWorker, load_failure, values

MIB = 2**20
X = WarmupInput("x", Datatype.FP32, (4,), values=(1, 2, 3))

# Answers with what its first runs were: rows, the sum of their inputs, and whether they came from this thread.
RECORDS = """
    import threading
    import torch
    from moorage import Model

    class Records(Model):
        def load(self, context):
            self.seen = []

        def infer(self, inputs, batch):
            x = inputs["x"]
            self.seen.append((batch.rows, x.sum().item(), threading.get_ident()))
            if batch.requests[0].id == "warmup":
                x.fill_(9)
                return {"y": x}
            first = [[rows, total, len(self.seen), thread == self.seen[-1][2]] for rows, total, thread in self.seen]
            return {"y": torch.tensor(first[: batch.rows], dtype=torch.float32)}
"""

GROWS = """
    import torch
    from moorage import Model

    class Grows(Model):
        def load(self, context):
            self.buffer = torch.ones(2**20)

        def infer(self, inputs, batch):
            self.table = torch.ones(2**21)
            return {"y": inputs["x"]}
"""

HUNGRY = """
    import torch
    from moorage import Model

    class Hungry(Model):
        def infer(self, inputs, batch):
            return {"y": inputs["x"] + torch.ones(batch.rows, 2**21)[:, :4]}
"""

# What it holds refers to itself, so that only a collection frees it.
FAILS = """
    import torch
    from moorage import Model

    class Fails(Model):
        def load(self, context):
            self.me = self
            self.weights = torch.ones(2**26)

        def infer(self, inputs, batch):
            activations = torch.ones(2**24)
            raise KeyError("no such row")
"""

# torch's own class of that name, which tells of a device that is good for nothing any more.
BREAKS = """
    from moorage import Model

    class AcceleratorError(RuntimeError):
        pass

    class Breaks(Model):
        def infer(self, inputs, batch):
            raise AcceleratorError("device-side assert triggered")
"""


def warm(spec: ModelSpec, *runs: WarmupRun) -> ModelSpec:
    return dataclasses.replace(spec, warmup=runs)


def test_its_runs_are_those_of_the_thread_that_serves(tmp_path: Path) -> None:
    async def use(worker: OneWorker) -> None:
        spec = python_spec(tmp_path, "records", RECORDS)
        await worker.load(warm(spec, WarmupRun(1, 2, (X,)), WarmupRun(3, 1, (X,))))  # the last of them twice: see below
        answer = (await worker.answer("records", values(4, 4))).reshape(4, 4)
        assert answer.tolist() == [[1, 7, 5, 1], [1, 7, 5, 1], [3, 24, 5, 1], [3, 24, 5, 1]]

    with_worker(use)


def test_what_its_first_run_makes_is_weighed(tmp_path: Path) -> None:
    async def use(worker: OneWorker) -> None:
        cold = await worker.load(python_spec(tmp_path, "cold", GROWS))
        assert cold.weights_bytes == 4 * MIB
        loaded = await worker.load(warm(python_spec(tmp_path, "warm", GROWS), WarmupRun(1, 1, (X,))))
        assert loaded.weights_bytes == 12 * MIB

    with_worker(use)


def test_nothing_is_left_of_a_model_that_fails(tmp_path: Path) -> None:
    async def use(worker: OneWorker) -> None:
        await worker.load(python_spec(tmp_path, "other", RECORDS))
        before_bytes = worker.rss_bytes()
        spec = warm(python_spec(tmp_path, "fails", FAILS), WarmupRun(1, 1, (X,)))
        for _ in range(2):
            worker.pool.load("cpu", ModelKey("fails", 1), spec)
            failed = await worker.next(ModelLoadFailed)
            assert str(failed.error) == "failed to load model 'fails': warmup[0] failed: KeyError: 'no such row'"
            assert 'raise KeyError("no such row")' in worker.reports[-1][1]
            assert worker.rss_bytes() < before_bytes + 64 * MIB
        assert (await worker.answer("other", values(1, 4))).shape == (4,)

    with_worker(use)


def test_one_that_breaks_the_device_is_told_before_its_process_ends(tmp_path: Path) -> None:
    async def use(worker: OneWorker) -> None:
        spec = warm(python_spec(tmp_path, "breaks", BREAKS), WarmupRun(1, 1, (X,)))
        worker.pool.load("cpu", ModelKey("breaks", 1), spec)
        failed = await worker.next(ModelLoadFailed)
        assert str(failed.error).endswith("warmup[0] failed: AcceleratorError: device-side assert triggered")
        await worker.next(WorkerLost)

    with_worker(use)


def test_a_simulated_model_takes_its_time(tmp_path: Path) -> None:
    costs = SimulatedCosts(load_s=0.1, run_s=0.1, run_s_per_row=0.05)  # and four runs: see below

    async def use(worker: OneWorker) -> None:
        spec = stepped_worker.spec_of("simulated", "simulated", tmp_path, costs)
        spec = dataclasses.replace(spec, memory=MemoryPolicy(weights_bytes=5))
        x = WarmupInput("x", Datatype.FP32, (1,))
        loaded = await worker.load(warm(spec, WarmupRun(2, 2, (x,)), WarmupRun(4, 1, (x,))))
        assert 1.1 <= loaded.load_s < 1.5
        assert loaded.weights_bytes == 5

    with_worker(use)


# Its first run of each size has something to prepare.
PREPARES = """
    import time
    from moorage import Model

    class Prepares(Model):
        def load(self, context):
            self.prepared = []

        def infer(self, inputs, batch):
            if batch.rows not in self.prepared:
                time.sleep(PREPARING_S)
            self.prepared.append(batch.rows)
            time.sleep(0.05 * batch.rows)
            return {"y": inputs["x"]}
"""


def timed(loaded: ModelLoaded) -> dict[int, float]:
    """By rows. Each has to be told once, with what a row takes."""
    runs = [run for run in loaded.rehearsed if run.seconds is not None]
    assert all(run.row_bytes == 16 for run in runs)
    found = {run.rows: run.seconds for run in runs if run.seconds is not None}
    assert len(found) == len(runs)
    return found


def test_what_runs_take_is_told_without_what_the_first_has_to_prepare(tmp_path: Path) -> None:
    async def use(worker: OneWorker) -> None:
        spec = python_spec(tmp_path, "prepares", PREPARES.replace("PREPARING_S", "0.4"))
        found = timed(
            await worker.load(warm(spec, *(WarmupRun(rows, count, (X,)) for rows, count in ((1, 1), (4, 3)))))
        )
        assert sorted(found) == [1, 4]
        assert 0.05 <= found[1] < 0.3
        assert 0.2 <= found[4] < 0.5

    with_worker(use)


def test_one_run_that_takes_long_is_not_done_again_for_its_time(tmp_path: Path) -> None:
    async def use(worker: OneWorker) -> None:
        spec = python_spec(tmp_path, "prepares", PREPARES.replace("PREPARING_S", "1.0"))
        loaded = await worker.load(warm(spec, WarmupRun(2, 1, (X,))))
        assert timed(loaded) == {}

    with_worker(use)


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel tells what a process takes on Linux")
def test_of_a_single_run_the_memory_is_told_too(tmp_path: Path) -> None:
    async def use(worker: OneWorker) -> None:
        spec = python_spec(tmp_path, "hungry", HUNGRY)
        loaded = await worker.load(warm(spec, WarmupRun(2, 1, (X,))))
        (run,) = loaded.rehearsed
        assert (run.rows, run.row_bytes) == (2, 16)
        assert run.peak_bytes == pytest.approx(16 * MIB, rel=0.2)
        assert run.seconds is not None

    with_worker(use)


def stepped(path: Path, *, samples: int, code: str = RUNNING, count: int = 1) -> ModelSpec:
    path.mkdir(parents=True)
    (path / "model.py").write_text(code_of(code))
    spec = stepped_worker.spec_of(path.parent.name, "python", path)
    return warm(spec, WarmupRun(2, count, (WarmupInput("x", Datatype.FP32, (samples,)),)))


@pytest.mark.parametrize(("samples", "steps"), [(3, 3), (40, 32)])
def test_a_stepped_model_takes_its_steps_and_keeps_no_state(
    worker: SteppedWorker, tmp_path: Path, samples: int, steps: int
) -> None:
    told = tmp_path / "steps"
    code = RUNNING.replace(
        "def step(self, states):", f"def step(self, states):\n            open({str(told)!r}, 'a').write('s')"
    )
    loaded = worker.load(stepped(tmp_path / f"steps_{samples}" / "1", samples=samples, code=code, count=2))
    assert isinstance(loaded, ModelLoaded)
    assert loaded.stepped
    assert loaded.rehearsed == (), "of its steps nothing is known"
    assert loaded.weights_bytes == 4
    assert told.read_text() == "s" * steps * 2
    request = worker.request(loaded.key, values(1, 5))
    assert worker.alone(request).shape == (1, 5)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("return State(", "raise OSError(5, 'x', '/secret')\n            return State(", "OSError: x"),
        ("return steps", "return steps[1:]", "step returned 0 Steps for 1 states"),
        ('Step({"y": y.double()', 'Step({"y": y[:1]', "output 'y': expected 2 rows, got 1"),
        (
            "done=True)",
            "done=True) if False else Step(done=True)",
            "step returned a Step with done=True and no outputs",
        ),
    ],
)
def test_a_stepped_model_that_fails_is_refused(
    worker: SteppedWorker, tmp_path: Path, old: str, new: str, reason: str
) -> None:
    code = RUNNING.replace('if trouble == "datatype" else y', "")
    assert old in code
    outcome = worker.load(stepped(tmp_path / "refused" / "1", samples=2, code=code.replace(old, new)))
    assert load_failure(outcome).startswith(f"failed to load model 'refused': warmup[0] failed: {reason}")
