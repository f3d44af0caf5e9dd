"""examples/models/vad, without a server, beside silero-vad's own forward over a whole recording."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from examples.speech import SAMPLE_RATE_HZ, conversation
from torch import Tensor

from moorage.authoring import Model
from tests.support.model_files import infer, load_example, rows_of

# TorchScript is all that silero-vad ships for torch. Outside of tests Python hides this warning.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.load` is deprecated:DeprecationWarning")


@pytest.fixture(scope="module")
def vad() -> Model:
    return load_example("vad")


@pytest.fixture(scope="module")
def speech() -> Tensor:
    """FP32[3, samples]: the same two phrases, as they are, later, and backwards. Not whole windows long."""
    audio = torch.from_numpy(conversation().audio)[:-100]
    return torch.stack([audio, audio.roll(7001), audio.flip(0)])


def probability(model: Model, audio: Tensor) -> Tensor:
    found: Tensor = infer(model, {"audio": audio})["probability"]
    return found


@pytest.fixture
def silero() -> Iterator[Any]:
    """The package's own model. Its import sets torch to one thread, which the tests after it should not inherit."""
    threads = torch.get_num_threads()
    import silero_vad  # noqa: PLC0415

    yield silero_vad.load_silero_vad()
    torch.set_num_threads(threads)


def test_agrees_with_silero_itself(vad: Model, silero: Any, speech: Tensor) -> None:
    expected = torch.cat([silero.audio_forward(row, SAMPLE_RATE_HZ) for row in rows_of(speech)])
    torch.testing.assert_close(probability(vad, speech), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize(("samples", "windows"), [(0, 0), (1, 1), (63, 1), (512, 1), (513, 2), (1024, 2), (1100, 3)])
def test_one_probability_for_every_begun_window(vad: Model, samples: int, windows: int) -> None:
    found = probability(vad, torch.zeros(2, samples))
    assert found.shape == (2, windows)
    assert found.dtype == torch.float32


def test_a_row_alone_equals_the_row_in_a_batch(vad: Model, speech: Tensor) -> None:
    alone = torch.cat([probability(vad, row) for row in rows_of(speech)])
    torch.testing.assert_close(alone, probability(vad, speech), atol=1e-5, rtol=0)


def test_nothing_stays_behind_between_runs(vad: Model, speech: Tensor) -> None:
    first = probability(vad, speech)
    probability(vad, speech.flip(0) * 3)
    assert torch.equal(probability(vad, speech), first)


def test_the_last_window_is_filled_up_with_zeros(vad: Model, speech: Tensor) -> None:
    short = speech[:, :16_100]
    filled = torch.nn.functional.pad(short, (0, -16_100 % 512))
    torch.testing.assert_close(probability(vad, short), probability(vad, filled), atol=1e-6, rtol=0)
