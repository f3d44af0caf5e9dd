"""Linear 1024-4096-4096-256, ReLU between, random weights: a run takes a few milliseconds of a CPU."""

from collections.abc import Mapping

import torch
from torch import nn

from moorage import Batch, Model, ModelContext


class Mlp(Model):
    """INPUT0 FP32[rows, 1024] -> OUTPUT0 FP32[rows, 256]."""

    network: nn.Sequential

    def load(self, context: ModelContext) -> None:
        self.network = nn.Sequential(
            nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 256)
        ).to(context.device)

    @torch.inference_mode()
    def infer(self, inputs: Mapping[str, torch.Tensor], batch: Batch) -> Mapping[str, torch.Tensor]:
        return {"OUTPUT0": self.network(inputs["INPUT0"])}
