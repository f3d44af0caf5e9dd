"""examples/models/vad, without a server, beside silero-vad's own forward over a whole recording."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from examples.speech import SAMPLE_RATE_HZ, conversation
from torch import Tensor

from moorage.authoring import StartingRequest, Step, SteppedModel
from moorage.workers.runtimes.stepped import PythonStates
from tests.support.model_files import infer, infer_together, load_example, rows_of

# TorchScript is all that silero-vad ships for torch. Outside of tests Python hides this warning.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.load` is deprecated:DeprecationWarning")


@pytest.fixture(scope="module")
def vad() -> SteppedModel:
    model = load_example("vad")
    assert isinstance(model, SteppedModel)
    return model


@pytest.fixture(scope="module")
def speech() -> Tensor:
    """FP32[3, samples]: the same two phrases, as they are, later, and backwards. Not whole windows long."""
    audio = torch.from_numpy(conversation().audio)[:-100]
    return torch.stack([audio, audio.roll(7001), audio.flip(0)])


def probability(model: SteppedModel, audio: Tensor) -> Tensor:
    found: Tensor = infer(model, {"audio": audio})["probability"]
    return found


@pytest.fixture
def silero() -> Iterator[Any]:
    """The package's own model. Its import sets torch to one thread, which the tests after it should not inherit."""
    threads = torch.get_num_threads()
    import silero_vad  # noqa: PLC0415

    yield silero_vad.load_silero_vad()
    torch.set_num_threads(threads)


def test_agrees_with_silero_itself(vad: SteppedModel, silero: Any, speech: Tensor) -> None:
    expected = torch.cat([silero.audio_forward(row, SAMPLE_RATE_HZ) for row in rows_of(speech)])
    torch.testing.assert_close(probability(vad, speech), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize(("samples", "windows"), [(0, 0), (1, 1), (63, 1), (512, 1), (513, 2), (1024, 2), (1100, 3)])
def test_one_probability_for_every_begun_window(vad: SteppedModel, samples: int, windows: int) -> None:
    found = probability(vad, torch.zeros(2, samples))
    assert found.shape == (2, windows)
    assert found.dtype == torch.float32


def test_a_row_alone_equals_the_row_in_a_batch(vad: SteppedModel, speech: Tensor) -> None:
    alone = torch.cat([probability(vad, row) for row in rows_of(speech)])
    torch.testing.assert_close(alone, probability(vad, speech), atol=1e-5, rtol=0)


@pytest.mark.parametrize("joining_at", [(0, 0, 0, 0), (3, 0, 2, 5)])
def test_neither_company_nor_its_coming_and_going_changes_a_bit(
    vad: SteppedModel, speech: Tensor, joining_at: tuple[int, ...]
) -> None:
    requests = [{"audio": audio} for audio in (speech[:1], speech[1:, :30_000], speech[:2, 5000:20_111], speech)]
    together = infer_together(vad, requests, joining_at)
    for request, answer in zip(requests, together, strict=True):
        assert torch.equal(answer["probability"], infer(vad, request)["probability"])


def test_a_recording_that_gave_way_is_heard_as_one_that_did_not(vad: SteppedModel, speech: Tensor) -> None:
    """As a worker does it: each in turn is moved off the device and back between its steps."""
    states = PythonStates(vad, "cpu")
    requests = {1: {"audio": speech[:1, :40_000]}, 2: {"audio": speech[1:]}}
    for request_id, inputs in requests.items():
        states.start(request_id, inputs, StartingRequest("", 1, {}, {}))
    states.step([1, 2])
    found: dict[int, Step] = {}
    for turn in range(20):
        going, waiting = (1, 2) if turn % 2 else (2, 1)
        if going in requests.keys() - found.keys():
            states.suspend(waiting)
            (step,) = states.step([going])
            found |= {going: step} if step.done else {}
            states.resume(waiting)
    for request_id, inputs in requests.items():
        outputs = found[request_id].outputs
        assert outputs is not None
        assert torch.equal(outputs["probability"], infer(vad, inputs)["probability"])


def test_more_recordings_than_the_network_takes_at_once(vad: SteppedModel, speech: Tensor) -> None:
    many = speech[0, :9000].repeat(11, 1)
    assert torch.equal(probability(vad, many), probability(vad, speech[:1, :9000]).repeat(11, 1))


def test_nothing_stays_behind_between_runs(vad: SteppedModel, speech: Tensor) -> None:
    first = probability(vad, speech)
    probability(vad, speech.flip(0) * 3)
    assert torch.equal(probability(vad, speech), first)


def test_the_last_window_is_filled_up_with_zeros(vad: SteppedModel, speech: Tensor) -> None:
    short = speech[:, :16_100]
    filled = torch.nn.functional.pad(short, (0, -16_100 % 512))
    torch.testing.assert_close(probability(vad, short), probability(vad, filled), atol=1e-6, rtol=0)
