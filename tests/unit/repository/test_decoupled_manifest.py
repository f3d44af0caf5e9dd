"""What must agree in the model.toml of a decoupled model."""

import pytest

from moorage.repository.errors import ManifestError
from moorage.repository.manifest import parse_manifest

_TENSORS = """
    max_batch_size = 8
    decoupled = true
    inputs = [{ name = "x", datatype = "FP32", shape = [3] }]
    outputs = [{ name = "y", datatype = "FP32", shape = [3] }]
"""
_RUNTIMES = "decoupled: expected true only with runtime = 'python', or 'simulated' with simulated.steps above 1, "


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ('runtime = "simulated"', f"{_RUNTIMES}got runtime = 'simulated'"),
        ('runtime = "onnx"', f"{_RUNTIMES}got runtime = 'onnx'"),
        ('runtime = "python"\ninstances = 2', "instances: expected 1 where decoupled is true, got 2"),
        (
            'runtime = "python"\nbatching = { split_requests = true }',
            "batching.split_requests: expected false where decoupled is true, got true",
        ),
    ],
)
def test_what_can_t_be(keys: str, problem: str) -> None:
    with pytest.raises(ManifestError) as caught:
        parse_manifest(f"{keys}\n{_TENSORS}".encode(), "any")
    assert caught.value.problems == (f"model.toml: {problem}",)


@pytest.mark.parametrize("keys", ['runtime = "python"', 'runtime = "simulated"\nsimulated = { steps = 2 }'])
def test_what_can(keys: str) -> None:
    assert parse_manifest(f"{keys}\n{_TENSORS}".encode(), "any").decoupled
