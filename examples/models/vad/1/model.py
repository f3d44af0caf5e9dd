"""Voice activity: silero-vad, the TorchScript file of the PyPI package silero-vad."""

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from moorage import Model
from moorage.authoring import Batch, ModelContext

WINDOW_SAMPLES = 512  # what one probability is about: 32 ms at 16 kHz
CONTEXT_SAMPLES = 64  # the end of the window before, which the network also sees
STATE_SHAPE = (2, 128)  # the LSTM's hidden and cell state of one recording


class VoiceActivity(Model):
    """audio FP32[rows, samples] at 16 kHz -> probability FP32[rows, windows], windows = ceil(samples / 512)."""

    device: str
    network: Any

    def load(self, context: ModelContext) -> None:
        self.device = context.device
        # The outer module keeps state between calls. Its 16 kHz network takes it as an argument, so a run
        # of ours leaves nothing behind and the rows of a batch go through the network side by side.
        self.network = torch.jit.load(str(script_path()), map_location=context.device)._model.eval()

    @torch.inference_mode()
    def infer(self, inputs: Mapping[str, Tensor], batch: Batch) -> Mapping[str, Tensor]:
        audio = inputs["audio"]
        rows, samples = audio.shape
        state = torch.zeros(STATE_SHAPE[0], rows, STATE_SHAPE[1], device=self.device)
        starts = range(0, samples, WINDOW_SAMPLES)
        probability = torch.empty(rows, len(starts), device=self.device)
        for index, start in enumerate(starts):
            column, state = self.network.forward(window(audio, start), state)
            probability[:, index : index + 1] = column
        return {"probability": probability}


def script_path() -> Path:
    """The TorchScript file inside the installed package, found without importing it.

    The package itself imports more than is needed here and sets torch to one thread for the whole process.
    """
    spec = find_spec("silero_vad")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("the vad model needs the package silero-vad")
    return Path(spec.submodule_search_locations[0]) / "data" / "silero_vad.jit"


def window(audio: Tensor, start: int) -> Tensor:
    """One window with its context: FP32[rows, 64 + 512], zeros where the recording has not begun or is over."""
    piece = audio[:, max(0, start - CONTEXT_SAMPLES) : start + WINDOW_SAMPLES]
    before = max(0, CONTEXT_SAMPLES - start)
    after = CONTEXT_SAMPLES + WINDOW_SAMPLES - before - piece.shape[1]
    return torch.nn.functional.pad(piece, (before, after))
