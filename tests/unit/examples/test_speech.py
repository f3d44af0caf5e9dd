"""The synthesised recording, the segments, and wav files."""

import wave
from pathlib import Path

import numpy as np
import pytest
import torch
from examples.speech import SAMPLE_RATE_HZ, WINDOW_S, conversation, read_wav, segments, write_wav

from tests.support.model_files import infer, load_example

# The detector hears a window late and lets go two windows late.
SLACK_S = 3 * WINDOW_S


def windows(*runs: tuple[float, int]) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """Probabilities from (value, how many windows) pairs."""
    return np.array([value for value, count in runs for _ in range(count)], dtype=np.float32)


@pytest.mark.filterwarnings("ignore:`torch.jit.load` is deprecated:DeprecationWarning")
def test_silero_hears_the_phrases_and_only_those() -> None:
    recording = conversation()
    probability = infer(load_example("vad"), {"audio": torch.from_numpy(recording.audio)[None]})["probability"][0]
    middles_s = (torch.arange(len(probability)) + 0.5) * WINDOW_S
    silent = torch.ones(len(probability), dtype=torch.bool)
    for start_s, end_s in recording.spoken_s:
        assert probability[(middles_s > start_s + SLACK_S) & (middles_s < end_s - SLACK_S)].min() > 0.5
        silent &= (middles_s < start_s - SLACK_S) | (middles_s > end_s + SLACK_S)
    assert probability[silent].max() < 0.3
    found = segments(probability.numpy())
    np.testing.assert_allclose(found, recording.spoken_s, atol=SLACK_S)


def test_same_seed_same_recording() -> None:
    assert np.array_equal(conversation(seed=3).audio, conversation(seed=3).audio)
    assert not np.array_equal(conversation(seed=3).audio, conversation(seed=4).audio)


@pytest.mark.parametrize("seed", range(5))
def test_recording_is_fp32_and_does_not_clip(seed: int) -> None:
    audio = conversation(seed).audio
    assert audio.dtype == np.float32
    assert 0.4 < np.abs(audio).max() < 0.6


def test_no_windows_no_segments() -> None:
    assert segments(windows()) == []


def test_segment_to_the_end_is_closed_there() -> None:
    assert segments(windows((0.0, 5), (0.9, 10))) == [(5 * WINDOW_S, 15 * WINDOW_S)]


def test_a_dip_between_the_thresholds_does_not_end_a_segment() -> None:
    assert segments(windows((0.9, 10), (0.4, 10), (0.9, 10), (0.1, 10))) == [(0.0, 30 * WINDOW_S)]


def test_what_never_reaches_the_upper_threshold_is_no_speech() -> None:
    assert segments(windows((0.45, 40))) == []


def test_a_short_pause_is_bridged_and_a_long_one_is_not() -> None:
    assert len(segments(windows((0.9, 10), (0.0, 3), (0.9, 10)))) == 1
    assert len(segments(windows((0.9, 10), (0.0, 4), (0.9, 10)))) == 2


def test_a_click_is_dropped() -> None:
    assert segments(windows((0.0, 10), (0.9, 3), (0.0, 10))) == []


def test_wav_round_trip(tmp_path: Path) -> None:
    audio = conversation().audio
    write_wav(tmp_path / "said.wav", audio)
    np.testing.assert_allclose(read_wav(tmp_path / "said.wav"), audio, atol=0.5 / 32768 + 1e-7)


def test_wav_clips_instead_of_wrapping(tmp_path: Path) -> None:
    write_wav(tmp_path / "loud.wav", np.array([2.0, -2.0], dtype=np.float32))
    np.testing.assert_allclose(read_wav(tmp_path / "loud.wav"), [32767 / 32768, -1.0])


def test_wav_of_another_form_says_what_it_is(tmp_path: Path) -> None:
    path = tmp_path / "stereo.wav"
    with wave.open(str(path), "wb") as file:
        file.setnchannels(2)
        file.setsampwidth(2)
        file.setframerate(2 * SAMPLE_RATE_HZ)
        file.writeframes(bytes(8))
    with pytest.raises(ValueError, match="it is 32000 Hz, 2 channels, 16 bits"):
        read_wav(path)


@pytest.mark.parametrize("content", [b"", b"not a wav file at all"])
def test_file_that_is_no_wav_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "no.wav"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"no\.wav is not a wav file"):
        read_wav(path)
