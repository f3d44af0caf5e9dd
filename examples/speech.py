"""Speech without a download: a small voice, speech segments from window probabilities, and wav files.

The voice follows the source-filter picture. Vocal folds give harmonics of a pitch, the vocal tract weights
them with its resonances (the formants), and hiss stands for breath and sibilants. It is no
pleasure to hear, but a voice detector takes it for speech. All audio here is FP32[samples] at 16 kHz.
"""

import wave
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Audio = NDArray[np.float32]
Signal = NDArray[np.float64]
Probabilities = NDArray[np.float32]

SAMPLE_RATE_HZ = 16_000
WINDOW_S = 512 / SAMPLE_RATE_HZ

# The first four resonances in Hz of an adult's vowels: the textbook averages, rounded.
FORMANTS_HZ = {
    "a": (730.0, 1090.0, 2440.0, 3400.0),
    "e": (530.0, 1840.0, 2480.0, 3500.0),
    "i": (270.0, 2290.0, 3010.0, 3600.0),
    "o": (570.0, 840.0, 2410.0, 3300.0),
    "u": (300.0, 870.0, 2240.0, 3200.0),
}
BANDWIDTHS_HZ = (80.0, 100.0, 140.0, 200.0)
SYLLABLE_S = 0.18
NOISE_FLOOR = 0.0005  # a quiet room: no recording is all zeros


@dataclass(frozen=True, slots=True)
class Recording:
    """What was said and when. spoken_s: (start, end) of each phrase, in seconds."""

    audio: Audio
    spoken_s: tuple[tuple[float, float], ...]


def conversation(seed: int = 0) -> Recording:
    """Two phrases with silence before, between and after: 4.9 s, the same for the same seed."""
    random = np.random.default_rng(seed)
    phrases = (speak("aeiouae", 120.0, random), speak("oieuai", 165.0, random))
    pieces: list[Signal] = []
    spoken: list[tuple[float, float]] = []
    for phrase, silence_s in zip(phrases, (0.8, 1.0), strict=True):
        pieces.append(np.zeros(samples_in(silence_s)))
        start_s = seconds_of(pieces)
        pieces.append(phrase)
        spoken.append((start_s, seconds_of(pieces)))
    pieces.append(np.zeros(samples_in(0.76)))
    audio = np.concatenate(pieces)
    audio += NOISE_FLOOR * random.standard_normal(audio.size)
    return Recording(audio.astype(np.float32), tuple(spoken))


def speak(vowels: str, pitch_hz: float, random: np.random.Generator) -> Signal:
    """A phrase, one syllable a vowel, gliding from each to the next, its peak at 0.5."""
    count = samples_in(SYLLABLE_S * len(vowels))
    syllable = np.arange(count) / samples_in(SYLLABLE_S)
    pitch = pitch_contour(syllable / len(vowels), pitch_hz)
    voice = voiced(pitch, formant_tracks(vowels, syllable)) * loudness(syllable, len(vowels))
    hiss = random.standard_normal(count) * np.exp(-(((syllable % 1.0) / 0.15) ** 2))
    mixed = voice / np.abs(voice).max() + 0.02 * hiss
    return np.asarray(0.5 * mixed / np.abs(mixed).max())


def pitch_contour(progress: Signal, pitch_hz: float) -> Signal:
    """Falls by a third over the phrase, as a statement does, with a slow wobble. progress: 0 to 1."""
    return np.asarray(pitch_hz * (1.15 - 0.35 * progress + 0.04 * np.sin(2 * np.pi * 3 * progress)))


def formant_tracks(vowels: str, syllable: Signal) -> Signal:
    """The resonances over time, FP64[4, samples]; held in the middle of a syllable, gliding between."""
    targets = np.array([FORMANTS_HZ[vowel] for vowel in vowels])
    held = np.arange(len(vowels))[:, None] + np.array([0.35, 0.75])
    return np.stack([np.interp(syllable, held.ravel(), np.repeat(track, 2)) for track in targets.T])


def loudness(syllable: Signal, syllables: int) -> Signal:
    """Rises and falls with every syllable, and is zero at both ends of the phrase."""
    beat = 0.25 + 0.75 * np.sin(np.pi * (syllable % 1.0)) ** 2
    ends = np.minimum(syllable, syllables - syllable) / 0.3
    return np.asarray(beat * np.clip(ends, 0.0, 1.0))


def voiced(pitch_hz: Signal, formants_hz: Signal) -> Signal:
    """The harmonics below 5 kHz of a gliding pitch, each weighted by source and vocal tract."""
    phase = 2 * np.pi * np.cumsum(pitch_hz) / SAMPLE_RATE_HZ
    total = np.zeros(pitch_hz.size)
    for harmonic in range(1, int(5000 / pitch_hz.max()) + 1):
        # Glottal pulses lose 12 dB an octave, and lips give 6 dB back.
        amplitude = vocal_tract(harmonic * pitch_hz, formants_hz) / harmonic
        total += np.real(amplitude * np.exp(1j * harmonic * phase))
    return total


def vocal_tract(frequency_hz: Signal, formants_hz: Signal) -> NDArray[np.complex128]:
    """The response at one frequency per sample: resonances in a row, each 1 at 0 Hz."""
    response = np.ones(frequency_hz.size, dtype=np.complex128)
    for center_hz, width_hz in zip(formants_hz, BANDWIDTHS_HZ, strict=True):
        response *= center_hz**2 / (center_hz**2 - frequency_hz**2 + 1j * width_hz * frequency_hz)
    return response


def segments(
    probabilities: Probabilities,
    *,
    start_above: float = 0.5,
    end_below: float = 0.35,
    min_speech_s: float = 0.2,
    min_silence_s: float = 0.1,
) -> list[tuple[float, float]]:
    """Speech as (start, end) in seconds, in order, from one recording's window probabilities.

    Speech starts with a window of at least `start_above` and ends before one under `end_below`: a voice that
    hovers round one threshold does not fall to pieces. Pauses shorter than `min_silence_s` are bridged first, then
    what is shorter than `min_speech_s` is dropped.
    """
    found = _spans(probabilities, start_above, end_below)
    bridged = _bridged(found, min_silence_s)
    return [(start_s, end_s) for start_s, end_s in bridged if end_s - start_s >= min_speech_s]


def _spans(probabilities: Probabilities, start_above: float, end_below: float) -> list[tuple[float, float]]:
    spans: list[tuple[float, float]] = []
    start: int | None = None
    for index, probability in enumerate(probabilities.tolist()):
        if start is None and probability >= start_above:
            start = index
        elif start is not None and probability < end_below:
            spans.append((start * WINDOW_S, index * WINDOW_S))
            start = None
    if start is not None:
        spans.append((start * WINDOW_S, len(probabilities) * WINDOW_S))
    return spans


def _bridged(spans: Sequence[tuple[float, float]], min_silence_s: float) -> list[tuple[float, float]]:
    bridged: list[tuple[float, float]] = []
    for start_s, end_s in spans:
        if bridged and start_s - bridged[-1][1] < min_silence_s:
            bridged[-1] = (bridged[-1][0], end_s)
        else:
            bridged.append((start_s, end_s))
    return bridged


def read_wav(path: Path) -> Audio:
    """The samples of a wav file, -1 to 1. Raises ValueError unless it is 16 kHz, mono and 16 bits a sample."""
    try:
        with wave.open(str(path), "rb") as file:
            form = (file.getframerate(), file.getnchannels(), file.getsampwidth())
            frames = file.readframes(file.getnframes())
    except (wave.Error, EOFError) as error:
        raise ValueError(f"{path} is not a wav file of plain samples: {error or 'it ends early'}") from error
    if form != (SAMPLE_RATE_HZ, 1, 2):
        raise ValueError(
            f"{path} must be 16000 Hz, 1 channel, 16 bits; it is {form[0]} Hz, {form[1]} channels, {form[2] * 8} bits"
        )
    return (np.frombuffer(frames, dtype="<i2") / 32768).astype(np.float32)


def write_wav(path: Path, audio: Audio) -> None:
    """Write 16 kHz mono, 16 bits a sample. What is beyond -1 and 1 is clipped."""
    samples = np.clip(np.round(audio * 32768.0), -32768, 32767).astype("<i2")
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(SAMPLE_RATE_HZ)
        file.writeframes(samples.tobytes())


def samples_in(seconds: float) -> int:
    """Samples in that many seconds."""
    return round(seconds * SAMPLE_RATE_HZ)


def seconds_of(pieces: Sequence[Signal]) -> float:
    """How long the pieces are together."""
    return sum(piece.size for piece in pieces) / SAMPLE_RATE_HZ
