"""Models of every runtime leave a real worker's memory and come back, and answer as before."""

import os
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from moorage.domain.model import ModelKey, ModelSpec
from moorage.scheduling.events import (
    ModelLoaded,
    ModelLoadFailed,
    ModelOffloaded,
    ModelOffloadFailed,
    ModelRestored,
    ModelRestoreFailed,
    ModelUnloaded,
)
from tests.support.one_worker import NAME, OneWorker, python_spec, spec_of, with_worker
from tests.support.toy_models import ECHO
from tests.support.until import until

MIB = 2**20
X = np.arange(8, dtype=np.float32).reshape(2, 4)
WIDE = np.linspace(-1.0, 1.0, 8192, dtype=np.float32).reshape(2, 4096)


# 64 MiB, and views of it.
LARGE = """
    import torch
    from moorage import Model

    class Large(Model):
        def load(self, context):
            self.weight = torch.randn(4096, 4096)
            self.rows = list(self.weight)

        def infer(self, inputs, batch):
            return {"y": inputs["x"] @ self.weight + self.rows[7]}
"""


class Large(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4096, 4096)
        self.register_buffer("scale", torch.rand(4096))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.linear(x) * self.scale
        return result


def large_python(folder: Path) -> ModelSpec:
    return python_spec(folder, "large", LARGE, 4096)


def large_torchscript(folder: Path) -> ModelSpec:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        traced = torch.jit.trace(Large(), torch.ones(2, 4096))  # type: ignore[no-untyped-call]
        torch.jit.save(traced, folder / "model.pt")
    return spec_of(folder, "large", "torchscript", 4096)


def large_torch_export(folder: Path) -> ModelSpec:
    torch.export.save(torch.export.export(Large(), (torch.ones(2, 4096),)), folder / "model.pt2")
    return spec_of(folder, "large", "torch_export", 4096)


@pytest.mark.parametrize("make", [large_python, large_torchscript, large_torch_export])
def test_offloading_frees_memory_and_restoring_brings_the_same_answers(
    make: Callable[[Path], ModelSpec], tmp_path: Path
) -> None:
    spec = make(tmp_path)
    key = ModelKey("large", 1)

    async def scenario(worker: OneWorker) -> None:
        loaded = await worker.load(spec)
        assert loaded.can_offload
        assert loaded.weights_bytes >= 64 * MIB
        expected = await worker.answer("large", WIDE)
        resident = worker.rss_bytes()
        for _ in range(20):
            worker.pool.offload(NAME, key)
            assert (await worker.next(ModelOffloaded)).retained_bytes == 0
            offloaded = worker.rss_bytes()
            worker.pool.restore(NAME, key)
            assert (await worker.next(ModelRestored)).restore_s > 0
            assert np.array_equal(await worker.answer("large", WIDE), expected)
            assert worker.rss_bytes() - offloaded >= 60 * MIB
            assert resident - offloaded >= 60 * MIB
        assert worker.rss_bytes() - resident <= 4 * MIB
        worker.pool.unload(NAME, key)
        assert (await worker.next(ModelUnloaded)).retained_bytes == 0

    with_worker(scenario)


def test_an_offloaded_model_can_be_unloaded(tmp_path: Path) -> None:
    spec = python_spec(tmp_path, "large", LARGE, 4096)
    key = ModelKey("large", 1)

    async def scenario(worker: OneWorker) -> None:
        await worker.load(spec)
        pid = worker.pool.pids[NAME]
        before = unnamed_files(pid)
        for _ in range(3):
            worker.pool.offload(NAME, key)
            await worker.next(ModelOffloaded)
            assert len(unnamed_files(pid)) == len(before) + 1
            worker.pool.unload(NAME, key)
            assert (await worker.next(ModelUnloaded)).retained_bytes == 0
            assert len(unnamed_files(pid)) == len(before) + 1, "one is kept for the next"
            await worker.load(spec)

    with_worker(scenario)


def unnamed_files(pid: int) -> list[str]:
    """Files of parked weights that a process has open, and those of pytest's."""
    folder = Path("/proc") / str(pid) / "fd"
    targets = [os.readlink(folder / name) for name in os.listdir(folder)]
    return [target for target in targets if target.endswith("(deleted)") and "memfd" not in target]


ARRAYS = """
    import numpy
    from moorage import Model

    class Arrays(Model):
        def load(self, context):
            self.a = numpy.ones(9)

        def infer(self, inputs, batch):
            return {"y": inputs["x"]}
"""


def test_models_without_tensors_cannot_be_offloaded(tmp_path: Path) -> None:
    async def scenario(worker: OneWorker) -> None:
        assert not (await worker.load(python_spec(tmp_path, "echo", ECHO))).can_offload
        loaded = await worker.load(python_spec(tmp_path, "arrays", ARRAYS))
        assert (loaded.weights_bytes, loaded.can_offload) == (72, False)

    with_worker(scenario)


# Drops its weights and makes them again; fails where its files say so.
BY_ITSELF = """
    import torch
    from moorage import Model

    class ByItself(Model):
        def load(self, context):
            self.path = context.path
            self.restore()

        def infer(self, inputs, batch):
            return {"y": inputs["x"] * self.weight[0]}

        def offload(self):
            if (self.path / "no-offload").exists():
                raise ValueError("not now")
            self.weight = None

        def restore(self):
            if (self.path / "no-restore").exists():
                raise ValueError(f"{self.path}/w.bin is gone")
            self.weight = torch.full((1000,), 2.0)
"""


def test_a_model_may_move_itself(tmp_path: Path) -> None:
    spec = python_spec(tmp_path, "itself", BY_ITSELF)
    key = ModelKey("itself", 1)

    async def scenario(worker: OneWorker) -> None:
        assert (await worker.load(spec)).can_offload
        worker.pool.offload(NAME, key)
        assert (await worker.next(ModelOffloaded)).retained_bytes == 0
        worker.pool.restore(NAME, key)
        await worker.next(ModelRestored)
        assert np.array_equal(await worker.answer("itself", X), 2 * X.ravel())

    with_worker(scenario)


def test_refusals_say_why_and_a_refused_offload_leaves_the_model_fit_for_runs(tmp_path: Path) -> None:
    spec = python_spec(tmp_path, "itself", BY_ITSELF)
    key = ModelKey("itself", 1)
    path = tmp_path / "itself"

    async def scenario(worker: OneWorker) -> None:
        await worker.load(spec)
        (path / "no-offload").touch()
        worker.pool.offload(NAME, key)
        await worker.next(ModelOffloadFailed)
        assert "not now" in worker.reports[-1][1]
        assert np.array_equal(await worker.answer("itself", X), 2 * X.ravel())
        (path / "no-offload").unlink()
        (path / "no-restore").touch()
        worker.pool.offload(NAME, key)
        await worker.next(ModelOffloaded)
        worker.pool.restore(NAME, key)
        failed = await worker.next(ModelRestoreFailed)
        assert "its weights did not come back: ValueError: w.bin is gone" in str(failed.error)
        worker.pool.unload(NAME, key)
        assert (await worker.next(ModelUnloaded)).retained_bytes == 0

    with_worker(scenario)


# Its load lasts until the test lets it end.
WAITS = """
    import time
    from moorage import Model

    class Waits(Model):
        def load(self, context):
            (context.path / "loading").touch()
            while not (context.path / "go").exists():
                time.sleep(0.01)

        def infer(self, inputs, batch):
            return {"y": inputs["x"]}
"""


def test_moves_and_unloads_do_not_wait_for_the_load_of_another(tmp_path: Path) -> None:
    large, waits = python_spec(tmp_path, "large", LARGE, 4096), python_spec(tmp_path, "waits", WAITS)
    key, other = ModelKey("large", 1), ModelKey("waits", 1)

    async def scenario(worker: OneWorker) -> None:
        await worker.load(large)
        worker.pool.load(NAME, other, waits)
        worker.pool.offload(NAME, key)
        await worker.next(ModelOffloaded)
        worker.pool.restore(NAME, key)
        await worker.next(ModelRestored)
        worker.pool.unload(NAME, key)
        await worker.next(ModelUnloaded)
        (tmp_path / "waits" / "go").touch()
        assert (await worker.next(ModelLoaded)).key == other

    with_worker(scenario)


def test_a_model_that_is_still_loading_is_unloaded_after_that(tmp_path: Path) -> None:
    waits = python_spec(tmp_path, "waits", WAITS)
    key = ModelKey("waits", 1)

    async def scenario(worker: OneWorker) -> None:
        worker.pool.load(NAME, key, waits)
        await until((tmp_path / "waits" / "loading").exists)
        worker.pool.unload(NAME, key)
        (tmp_path / "waits" / "go").touch()
        await worker.next(ModelLoaded)
        assert (await worker.next(ModelUnloaded)).key == key

    with_worker(scenario)


def test_a_cpu_has_no_cap_and_nothing_cached(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(worker: OneWorker) -> None:
        worker.pool.cap(NAME, 1, keeps_cached=False, keeps_pinned=False)
        await worker.load(python_spec(tmp_path, "echo", ECHO))
        worker.pool.cap(NAME, 2, keeps_cached=False, keeps_pinned=False)
        x = np.ones((1, 4), np.float32)
        assert np.array_equal(await worker.answer("echo", x), x[0])
        with caplog.at_level("INFO"):
            worker.pool.give_back(NAME)
            await until(lambda: "worker cpu gave 0 cached bytes back" in caplog.text)

    with_worker(scenario)


def test_half_of_a_pair_is_the_authors_mistake(tmp_path: Path) -> None:
    spec = python_spec(tmp_path, "half", BY_ITSELF.replace("def restore", "def bring_back"))

    async def scenario(worker: OneWorker) -> None:
        worker.pool.load(NAME, ModelKey("half", 1), spec)
        failed = await worker.next(ModelLoadFailed)
        assert "must define both offload and restore, or neither" in str(failed.error)

    with_worker(scenario)
