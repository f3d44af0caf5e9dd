"""Voice activity: silero-vad, the TorchScript file of the PyPI package silero-vad."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from moorage import ModelContext, Step, SteppedModel
from moorage.authoring import StartingRequest

WINDOW_SAMPLES = 512  # what one probability is about: 32 ms at 16 kHz
CONTEXT_SAMPLES = 64  # the end of the window before, which the network also sees
WINDOWS_PER_STEP = 16  # half a second of audio, a few milliseconds of work
STATE_SHAPE = (2, 128)  # the LSTM's hidden and cell state of one recording
# The LSTM always runs over this many rows, filled up with zeros. The kernels for other widths round differently, and a
# recording's result would depend on how many others happened to be there.
LSTM_ROWS = 8


@dataclass
class Listening:
    """One request's recordings. probability: FP32[rows, windows]; those before `window` are known."""

    audio: Tensor
    lstm: Tensor
    probability: Tensor
    window: int = 0


class VoiceActivity(SteppedModel):
    """audio FP32[rows, samples] at 16 kHz -> probability FP32[rows, windows], windows = ceil(samples / 512).

    A step goes over the next 16 windows of every request's recordings, all of them side by side.
    """

    network: Any

    def load(self, context: ModelContext) -> None:
        # The outer module keeps state between calls. Its 16 kHz network takes it as an argument.
        self.network = torch.jit.load(str(script_path()), map_location=context.device)._model.eval()

    def start(self, inputs: Mapping[str, Tensor], request: StartingRequest) -> Listening:
        audio = inputs["audio"]
        rows, samples = audio.shape
        windows = -(-samples // WINDOW_SAMPLES)
        lstm = audio.new_zeros(STATE_SHAPE[0], rows, STATE_SHAPE[1])
        return Listening(audio, lstm, audio.new_empty(rows, windows))

    @torch.inference_mode()
    def step(self, states: Sequence[Listening]) -> Sequence[Step]:
        rows = [len(state.audio) for state in states]
        heard = torch.cat([next_windows(state) for state in states])
        lstm = torch.cat([state.lstm for state in states], dim=1)
        probability, lstm = self.listen(heard, lstm)
        for state, found, after in zip(states, probability.split(rows), lstm.split(rows, dim=1), strict=True):
            end = min(state.window + WINDOWS_PER_STEP, state.probability.shape[1])
            state.probability[:, state.window : end] = found[:, : end - state.window]
            state.window = end
            state.lstm = after.clone()  # a view would keep the whole batch's
        return [finish(state) for state in states]

    def listen(self, heard: Tensor, lstm: Tensor) -> tuple[Tensor, Tensor]:
        """FP32[rows, windows, 576] to FP32[rows, windows], and the LSTM's state after them.

        A recording that ends within the step goes on over zeros: what comes of that is not kept.
        """
        rows, windows, samples = heard.shape
        features = self.network.encoder.forward(self.network.run_extractors(heard.reshape(-1, samples)))
        features = features.unflatten(0, (rows, windows))
        parts = [self.decode(*part) for part in zip(features.split(LSTM_ROWS), lstm.split(LSTM_ROWS, 1), strict=True)]
        return torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts], dim=1)

    def decode(self, features: Tensor, lstm: Tensor) -> tuple[Tensor, Tensor]:
        """Up to LSTM_ROWS recordings, one window after the other."""
        rows, windows = features.shape[:2]
        features = filled_up(features, 0)
        lstm = filled_up(lstm, 1)
        columns = []
        for window in range(windows):
            column, lstm = self.network.decoder.forward(features[:, window], lstm)
            columns.append(column.squeeze(1).mean(1, keepdim=True))
        return torch.cat(columns, dim=1)[:rows], lstm[:, :rows]


def next_windows(state: Listening) -> Tensor:
    """FP32[rows, 16, 64 + 512]: each window behind its context; zeros before the recording and after its end."""
    start = state.window * WINDOW_SAMPLES - CONTEXT_SAMPLES
    end = (state.window + WINDOWS_PER_STEP) * WINDOW_SAMPLES
    piece = state.audio[:, max(0, start) : end]
    before = max(0, -start)
    padded = torch.nn.functional.pad(piece, (before, end - start - before - piece.shape[1]))
    return padded.unfold(1, CONTEXT_SAMPLES + WINDOW_SAMPLES, WINDOW_SAMPLES)


def finish(state: Listening) -> Step:
    """The answer, once there is one."""
    if state.window < state.probability.shape[1]:
        return Step()
    return Step(outputs={"probability": state.probability}, done=True)


def filled_up(tensor: Tensor, dimension: int) -> Tensor:
    """With zeros, to LSTM_ROWS along one dimension."""
    missing = list(tensor.shape)
    missing[dimension] = LSTM_ROWS - missing[dimension]
    return torch.cat([tensor, tensor.new_zeros(missing)], dim=dimension)


def script_path() -> Path:
    """The TorchScript file inside the installed package, found without importing it.

    The package itself imports more than is needed here and sets torch to one thread for the whole process.
    """
    spec = find_spec("silero_vad")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("the vad model needs the package silero-vad")
    return Path(spec.submodule_search_locations[0]) / "data" / "silero_vad.jit"
