"""examples/models/identity, without a server."""

import torch

from tests.support.model_files import infer, load_example


def test_returns_its_input() -> None:
    rows = torch.arange(48, dtype=torch.float32).reshape(3, 16)
    outputs = infer(load_example("identity"), {"INPUT0": rows})
    assert list(outputs) == ["OUTPUT0"]
    assert torch.equal(outputs["OUTPUT0"], rows)
