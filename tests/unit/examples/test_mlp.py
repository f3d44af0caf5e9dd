"""examples/models/mlp, without a server."""

import pytest
import torch
from torch import Tensor, nn

from moorage.authoring import Loadable
from tests.support.model_files import infer, load_example, rows_of


@pytest.fixture(scope="module")
def mlp() -> Loadable:
    return load_example("mlp")


@pytest.fixture
def rows() -> Tensor:
    return torch.randn(5, 1024, generator=torch.Generator().manual_seed(1))


def test_shape_and_datatype(mlp: Loadable, rows: Tensor) -> None:
    output = infer(mlp, {"INPUT0": rows})["OUTPUT0"]
    assert output.shape == (5, 256)
    assert output.dtype == torch.float32


def test_weights_are_those_of_a_seeded_torch(mlp: Loadable, rows: Tensor) -> None:
    with torch.random.fork_rng(devices=[]), torch.inference_mode():
        torch.manual_seed(0)
        layers = (nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 256))
        expected = nn.Sequential(*layers)(rows)
    assert torch.equal(infer(mlp, {"INPUT0": rows})["OUTPUT0"], expected)


def test_loading_leaves_the_global_generator_alone() -> None:
    before = torch.random.get_rng_state()
    load_example("mlp")
    assert torch.equal(torch.random.get_rng_state(), before)


def test_input_is_left_as_it_was(mlp: Loadable, rows: Tensor) -> None:
    before = rows.clone()
    infer(mlp, {"INPUT0": rows})
    assert torch.equal(rows, before)


def test_a_row_alone_equals_the_row_in_a_batch(mlp: Loadable, rows: Tensor) -> None:
    together = infer(mlp, {"INPUT0": rows})["OUTPUT0"]
    alone = torch.cat([infer(mlp, {"INPUT0": row})["OUTPUT0"] for row in rows_of(rows)])
    torch.testing.assert_close(alone, together, atol=1e-5, rtol=0)
