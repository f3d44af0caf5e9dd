"""A plain multilayer perceptron with random weights, the same ones at every load."""

import math
from collections.abc import Mapping

import torch
from torch import Generator, Tensor, nn

from moorage import Model
from moorage.authoring import Batch, ModelContext

SEED = 0


class Mlp(Model):
    """INPUT0 FP32[rows, 1024] -> OUTPUT0 FP32[rows, 256], through two hidden layers of 4096."""

    network: nn.Sequential

    def load(self, context: ModelContext) -> None:
        # A generator of its own: seeding torch's global one would change what other models of this worker draw.
        generator = torch.Generator().manual_seed(SEED)
        self.network = nn.Sequential(
            linear(1024, 4096, generator),
            nn.ReLU(inplace=True),
            linear(4096, 4096, generator),
            nn.ReLU(inplace=True),
            linear(4096, 256, generator),
        ).to(context.device)

    @torch.inference_mode()
    def infer(self, inputs: Mapping[str, Tensor], batch: Batch) -> Mapping[str, Tensor]:
        return {"OUTPUT0": self.network(inputs["INPUT0"])}


def linear(in_features: int, out_features: int, generator: Generator) -> nn.Linear:
    """A layer as nn.Linear initialises it, drawn from `generator` in the same order, on the CPU.

    So the weights equal those of torch.manual_seed(SEED) and then building the layers, on every device.
    """
    layer: nn.Linear = nn.utils.skip_init(nn.Linear, in_features, out_features)
    nn.init.kaiming_uniform_(layer.weight, a=math.sqrt(5), generator=generator)
    bound = 1 / math.sqrt(in_features)
    nn.init.uniform_(layer.bias, -bound, bound, generator=generator)
    return layer
