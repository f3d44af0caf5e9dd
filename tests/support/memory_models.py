"""Models whose memory is the point: real weights from a seed, work that needs room, and recordings that take time."""

import shutil
from pathlib import Path
from textwrap import dedent

import numpy as np
import torch
from numpy.typing import NDArray

from tests.support.toy_models import write_simulated_model

MIB = 1 << 20
EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "models"

BLOCKS, SIDE = 64, 512
BLOCKS_BYTES = BLOCKS * SIDE * SIDE * 4

_BLOCKS_MANIFEST = """
runtime = "python"
load = "on_demand"
max_batch_size = 8
inputs = [
    {{ name = "block", datatype = "INT64", shape = [1] }},
    {{ name = "x", datatype = "FP32", shape = [{side}] }},
]
outputs = [{{ name = "y", datatype = "FP32", shape = [{side}] }}]
[memory]
weights = "{weights_bytes} B"
[scheduling]
priority = {priority}
[parameters]
seed = {seed}
shape = [{blocks}, {side}, {side}]
"""

_BLOCKS_CODE = """
    import torch
    from moorage import Model

    class Blocks(Model):
        def load(self, context):
            seeded = torch.Generator().manual_seed(context.parameters["seed"])
            self.weights = torch.empty(context.parameters["shape"]).uniform_(-1, 1, generator=seeded)

        def infer(self, inputs, batch):
            chosen = inputs["block"][:, 0].tolist()
            return {"y": torch.stack([self.weights[block] @ x for block, x in zip(chosen, inputs["x"])])}
"""


def write_blocks(root: Path, name: str, *, seed: int, priority: int = 3) -> None:
    """A model of 64 MiB: many square matrices, of which each row of a request names one to be multiplied with."""
    manifest = _BLOCKS_MANIFEST.format(
        side=SIDE, blocks=BLOCKS, weights_bytes=BLOCKS_BYTES, priority=priority, seed=seed
    )
    _write(root / name, manifest, _BLOCKS_CODE)


def weights_of_blocks(seed: int) -> NDArray[np.float32]:
    """The same matrices: FP32[BLOCKS, SIDE, SIDE]."""
    seeded = torch.Generator().manual_seed(seed)
    weights: NDArray[np.float32] = torch.empty(BLOCKS, SIDE, SIDE).uniform_(-1, 1, generator=seeded).numpy()
    return weights


_URGENT_MANIFEST = """
runtime = "python"
max_batch_size = 1
inputs = [{{ name = "x", datatype = "FP32", shape = [1] }}]
outputs = [{{ name = "moments_s", datatype = "FP64", shape = [2] }}]
[memory]
weights = "1 MiB"
pinned = true
workspace_fixed = "{workspace_bytes} B"
[scheduling]
priority = 1
[parameters]
workspace_bytes = {workspace_bytes}
"""

_URGENT_CODE = """
    import time
    import torch
    from moorage import Model

    class Urgent(Model):
        def load(self, context):
            self.weights = torch.ones(2**18)
            self.size = context.parameters["workspace_bytes"] // 4

        def infer(self, inputs, batch):
            began_s = time.monotonic()
            torch.ones(self.size).sum()
            return {"moments_s": torch.tensor([[began_s, time.monotonic()]], dtype=torch.float64)}
"""


def write_urgent(root: Path, name: str, *, workspace_bytes: int) -> None:
    """A model of priority 1 whose runs take this much memory. It answers when a run began and ended, on the clock of
    time.monotonic, which all processes of a machine share.
    """
    _write(root / name, _URGENT_MANIFEST.format(workspace_bytes=workspace_bytes), _URGENT_CODE)


# Appended to the example's model.py: tells when every step began and ended, on the clock of time.monotonic.
_TOLD_STEPS = """

import struct
import time

_moments = open({path!r}, "ab", buffering=0)
_untold_step = VoiceActivity.step


def _told_step(self, states):
    began_s = time.monotonic()
    steps = _untold_step(self, states)
    _moments.write(struct.pack("dd", began_s, time.monotonic()))
    return steps


VoiceActivity.step = _told_step
"""


def steps_told(moments: Path) -> NDArray[np.float64]:
    """When each step began and ended: FP64[steps, 2]."""
    return np.frombuffer(moments.read_bytes(), np.float64).reshape(-1, 2)


def write_voice_activity(
    root: Path, name: str, *, moments: Path, state_bytes: int, priority: int, max_preemptions: int
) -> None:
    """The example vad for recordings whose states take this much, with another standing.

    moments: the file where it tells of its steps.
    """
    folder = root / name
    shutil.copytree(EXAMPLES / "vad", folder)
    manifest = (folder / "model.toml").read_text()
    for before, after in (
        ('state = "40 MiB"', f'state = "{state_bytes} B"'),
        ("[scheduling]", f"[scheduling]\npriority = {priority}\nmax_preemptions = {max_preemptions}"),
        ("default_timeout_s = 120.0", "default_timeout_s = 600.0"),
    ):
        assert before in manifest
        manifest = manifest.replace(before, after)
    (folder / "model.toml").write_text(manifest)
    with (folder / "1" / "model.py").open("a") as code:
        code.write(_TOLD_STEPS.format(path=str(moments)))


def write_on_a_card(root: Path, name: str, *, weights_bytes: int, run_s: float, move_s: float) -> None:
    """A simulated model for cuda:0, which needs no card to compute."""
    extra = f'[memory]\nweights = "{weights_bytes} B"\n[placement]\ndevices = ["cuda:0"]\n'
    folder = write_simulated_model(root, name, run_s=run_s, load_s=move_s, extra=extra)
    with (folder / "model.toml").open("a") as manifest:
        manifest.write(f"restore_s = {move_s}\n")


def _write(folder: Path, manifest: str, code: str) -> None:
    (folder / "1").mkdir(parents=True)
    (folder / "model.toml").write_text(manifest)
    (folder / "1" / "model.py").write_text(dedent(code))
