"""Of a model that is offloaded or unloaded, what something still holds is told in bytes."""

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from moorage.domain.model import ModelKey
from moorage.scheduling.events import ModelOffloaded, ModelRestored, ModelUnloaded
from tests.support.one_worker import NAME, OneWorker, python_spec, spec_of, with_worker

X = np.arange(8, dtype=np.float32).reshape(2, 4)

# Something outside holds one of two tensors; unload raises where it is told to.
KEPT = """
    import sys
    import torch
    from moorage import Model

    class Kept(Model):
        def load(self, context):
            self.a, self.b = torch.ones(1000), torch.ones(500)
            if {keeps}:
                sys.kept_by_a_test = self.a[5:]

        def infer(self, inputs, batch):
            return {{"y": inputs["x"] * self.a[0]}}

        def unload(self):
            if {raises}:
                raise RuntimeError("no")
"""


@pytest.mark.parametrize(("keeps", "raises", "retained"), [(0, 0, 0), (1, 0, 4000), (0, 1, 0), (1, 1, 4000)])
def test_what_something_still_holds_after_unload_is_told(
    tmp_path: Path, keeps: int, raises: int, retained: int
) -> None:
    spec = python_spec(tmp_path, "kept", KEPT.format(keeps=keeps, raises=raises))

    async def scenario(worker: OneWorker) -> None:
        assert (await worker.load(spec)).weights_bytes == 6000
        await worker.answer("kept", X)
        worker.pool.unload(NAME, ModelKey("kept", 1))
        assert (await worker.next(ModelUnloaded)).retained_bytes == retained

    with_worker(scenario)


# A scripted module's plain attribute is not found, and sees the same memory as its buffer.
class Hiding(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.arange(1000.0))
        self.hidden = self.get_buffer("seen")[:4]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.hidden


def test_what_hidden_views_keep_on_the_device_is_told_and_answers_stay_right(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.save(torch.jit.script(Hiding()), tmp_path / "model.pt")

    async def scenario(worker: OneWorker) -> None:
        await worker.load(spec_of(tmp_path, "hiding", "torchscript"))
        expected = await worker.answer("hiding", X)
        worker.pool.offload(NAME, ModelKey("hiding", 1))
        assert (await worker.next(ModelOffloaded)).retained_bytes == 4000
        worker.pool.restore(NAME, ModelKey("hiding", 1))
        await worker.next(ModelRestored)
        assert np.array_equal(await worker.answer("hiding", X), expected)

    with_worker(scenario)
