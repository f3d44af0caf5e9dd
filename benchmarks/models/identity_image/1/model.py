"""Returns its input: what is measured is everything else."""

from collections.abc import Mapping

import torch

from moorage import Batch, Model


class Identity(Model):
    """INPUT0 comes back as OUTPUT0."""

    def infer(self, inputs: Mapping[str, torch.Tensor], batch: Batch) -> Mapping[str, torch.Tensor]:
        return {"OUTPUT0": inputs["INPUT0"]}
