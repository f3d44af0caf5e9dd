"""A model that tells whose rows it was given, and fails for marked ones; and what callers may be given by it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.calls import output_of
from tests.support.toy_models import EXPLICIT, write_python_model

MOST_ROWS = 8
POISON = 666.0
HUNGRY = 777.0  # finds no memory, with whomever it runs

# Each row comes back changed, and with how many rows its run had. It waits for company, and takes a while.
_MIRROR = """
    import time
    import torch
    from moorage import Model

    class Mirror(Model):
        def load(self, context):
            self.fitting_rows = context.parameters["fitting_rows"]

        def infer(self, inputs, batch):
            time.sleep(0.002)
            x = inputs["x"]
            if (x == 666).any():
                raise RuntimeError("secret detail of the model")
            if batch.rows > self.fitting_rows or (x == 777).any():
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")
            y = torch.zeros_like(x)
            y[:, 0] = x[:, 0] * 2 + 1
            y[:, 1] = batch.rows
            return {"y": y}
"""


def write_mirror(
    root: Path, name: str, most_rows: int = MOST_ROWS, fitting_rows: int = MOST_ROWS, extra: str = ""
) -> None:
    """fitting_rows: a run of more finds no memory. extra: more tables of model.toml."""
    waits = f"[batching]\nmax_queue_delay_s = 0.02\nlow_watermark = {most_rows}\n"
    parameters = f"[parameters]\nfitting_rows = {fitting_rows}\n"
    tables = f"{waits}[scheduling]\nmax_queue_rows = 4096\n{parameters}{extra}"
    write_python_model(root, name, _MIRROR, max_batch_size=most_rows, extra=tables, top=EXPLICIT)


def check_own_rows(outcome: Any, values: Sequence[float], most_rows: int = MOST_ROWS) -> None:
    """The answer is to these very rows, and no run had more than it may."""
    output = output_of(outcome)
    np.testing.assert_array_equal(output[:, 0], [value * 2 + 1 for value in values])
    assert output[:, 1].max() <= most_rows
