"""Starts a server with the example models and asks them: `python -m examples.demo`, or `make demo`.

Compares sentences, finds the speech in a recording, shows what the models take of the memory, and stops the
server. Exits 0 if all of it went well, 1 with the reason if not.
"""

import argparse
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import numpy as np
from rich.console import Console
from rich.table import Table

from examples.demo_sentences import PAIRS
from examples.server_process import ServerProcess, serve_command
from examples.speech import SAMPLE_RATE_HZ, WINDOW_S, Audio, conversation, read_wav, segments
from moorage_client import SyncClient

MODELS = Path(__file__).resolve().parent / "models"
READY_TIMEOUT_S = 120.0  # the first import of torch and transformers reads a lot from a cold disk
TIMELINE_COLUMNS = 64


class DemoError(Exception):
    """The server answered, but not what it should."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo. Returns the exit code."""
    options = _parser().parse_args(arguments)
    # A plain SIGTERM ends Python without running `finally`, and the server would stay behind.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _exit_on_signal)
    console = Console()
    try:
        audio = read_wav(options.wav) if options.wav else conversation().audio
        with target(options.target, console) as address:
            show(address, audio, console)
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        Console(stderr=True).print(f"[red]demo failed:[/red] {type(error).__name__}:", end=" ")
        Console(stderr=True).print(str(error), markup=False, highlight=False, soft_wrap=True)
        return 1
    return 0


def show(address: str, audio: Audio, console: Console) -> None:
    """Ask the server at `address` and print what it says. Raises DemoError if a similarity is out of range."""
    with SyncClient(address) as client:
        client.wait_until_ready(timeout_s=READY_TIMEOUT_S)
        similarities = ask_embedder(client)
        console.print(similarity_table(similarities))
        probabilities = ask_vad(client, audio)
        show_speech(probabilities, audio.size / SAMPLE_RATE_HZ, console)
        console.print(model_table(client))
    wrong = [pair for pair, cosine in zip(PAIRS, similarities, strict=True) if not pair.accepts(cosine)]
    if wrong:
        raise DemoError("similarity out of range: " + "; ".join(f"{pair.first!r} / {pair.second!r}" for pair in wrong))


@contextmanager
def target(given: str | None, console: Console) -> Iterator[str]:
    """The address of a running server: the one given, or one that is started here and stopped at the end."""
    if given is not None:
        yield given
        return
    with ServerProcess(serve_command(MODELS, budget="2GiB")) as server:
        console.print(f"server started at {server.address}, 2 GiB for its models\n", highlight=False)
        yield server.address
        server.stop()
    console.print("\nserver stopped", highlight=False)


def ask_embedder(client: SyncClient) -> list[float]:
    """The cosine of every pair. All sentences go in one request."""
    sentences = [sentence.encode() for pair in PAIRS for sentence in (pair.first, pair.second)]
    text = np.array(sentences, dtype=object).reshape(-1, 1)
    embedding = client.infer("embedder", {"text": text})["embedding"]
    return [float(cosine) for cosine in np.sum(embedding[0::2] * embedding[1::2], axis=1)]


def ask_vad(client: SyncClient, audio: Audio) -> Audio:
    """FP32[windows]: how likely each window of one recording is speech."""
    probability = client.infer("vad", {"audio": audio.reshape(1, -1)})["probability"]
    return np.asarray(probability[0], dtype=np.float32)


def similarity_table(similarities: Sequence[float]) -> Table:
    """What the embedder said."""
    table = Table(title="embedder: cosine similarity", title_justify="left", show_lines=True)
    for heading in ("sentence", "compared with", "cosine", "expected"):
        table.add_column(heading)
    for pair, cosine in zip(PAIRS, similarities, strict=True):
        style = "green" if pair.accepts(cosine) else "red"
        expected = "> 0.6, says the same" if pair.paraphrase else "< 0.3, unrelated"
        table.add_row(pair.first, pair.second, f"[{style}]{cosine:.3f}[/{style}]", expected)
    return table


def show_speech(probabilities: Audio, length_s: float, console: Console) -> None:
    """What vad said: a line to look at, and the segments."""
    spoken = segments(probabilities)
    console.print(f"\nvad: speech in a recording of {length_s:.2f} s", style="italic", highlight=False)
    console.print(timeline(spoken, length_s), style="cyan", highlight=False)
    for start_s, end_s in spoken:
        inside = probabilities[round(start_s / WINDOW_S) : round(end_s / WINDOW_S)]
        console.print(f"  {start_s:6.2f} s to {end_s:6.2f} s   mean probability {inside.mean():.2f}", highlight=False)
    console.print("  no speech found\n" if not spoken else "", highlight=False)


def timeline(spoken: Sequence[tuple[float, float]], length_s: float) -> str:
    """The recording as one line: a full block where somebody speaks, a dot where nobody does."""
    middles_s = ((column + 0.5) / TIMELINE_COLUMNS * length_s for column in range(TIMELINE_COLUMNS))
    return "  " + "".join("█" if any(start <= at < end for start, end in spoken) else "·" for at in middles_s)


def model_table(client: SyncClient) -> Table:
    """What is loaded and what it takes."""
    table = Table(title="models", title_justify="left")
    for heading in ("model", "version", "state", "device"):
        table.add_column(heading)
    table.add_column("memory", justify="right")
    models = client.models()
    for model in models:
        state = f"{model.state}: {model.reason}" if model.reason else str(model.state)
        table.add_row(
            model.name, str(model.version), state, model.device or "", f"{(model.memory_bytes or 0) / 2**20:.1f} MiB"
        )
    total_bytes = sum(model.memory_bytes or 0 for model in models)
    table.add_section()
    table.add_row("all", "", "", "", f"{total_bytes / 2**20:.1f} MiB")
    return table


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m examples.demo", description="Ask the example models.")
    parser.add_argument("--target", metavar="HOST:PORT", help="ask this running server instead of starting one")
    parser.add_argument("--wav", type=Path, metavar="FILE", help="find the speech in this 16 kHz mono 16-bit wav")
    return parser


def _exit_on_signal(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
