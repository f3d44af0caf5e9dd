"""Returns its input."""

from collections.abc import Mapping

from torch import Tensor

from moorage import Model
from moorage.authoring import Batch


class Identity(Model):
    """INPUT0 FP32[rows, 16] -> OUTPUT0 FP32[rows, 16]."""

    def infer(self, inputs: Mapping[str, Tensor], batch: Batch) -> Mapping[str, Tensor]:
        return {"OUTPUT0": inputs["INPUT0"]}
