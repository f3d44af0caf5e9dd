"""Every runtime through a real server and a real worker."""

import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper

from moorage_client import MoorageClientError, SyncClient
from tests.support.running_server import running_server
from tests.support.toy_models import write_python_model


class Affine(torch.nn.Module):
    """y = x * weight + 1"""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([1.0, 2.0, 3.0, 4.0]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight + 1


MANIFEST = """
runtime = "{runtime}"
max_batch_size = 8
inputs = [{{ name = "x", datatype = "FP32", shape = [4] }}]
outputs = [{{ name = "y", datatype = "FP32", shape = [4] }}]
"""


def model_folder(root: Path, runtime: str) -> Path:
    folder = root / runtime
    (folder / "1").mkdir(parents=True)
    (folder / "model.toml").write_text(MANIFEST.format(runtime=runtime))
    return folder / "1"


def write_torchscript(root: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.save(torch.jit.script(Affine()), model_folder(root, "torchscript") / "model.pt")


def write_torch_export(root: Path) -> None:
    rows = torch.export.Dim("rows", min=1, max=8)
    program = torch.export.export(Affine(), (torch.ones(2, 4),), dynamic_shapes={"x": {0: rows}})
    torch.export.save(program, model_folder(root, "torch_export") / "model.pt2")


def write_onnx(root: Path) -> None:
    weight = helper.make_tensor("weight", TensorProto.FLOAT, [4], [1.0, 2.0, 3.0, 4.0])
    one = helper.make_tensor("one", TensorProto.FLOAT, [1], [1.0])
    nodes = [helper.make_node("Mul", ["x", "weight"], ["m"]), helper.make_node("Add", ["m", "one"], ["y"])]
    tensors = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", 4]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "affine", tensors[:1], tensors[1:], [weight, one])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(model_folder(root, "onnx") / "model.onnx"))


PYTHON_AFFINE = """
    import torch
    from moorage import Model

    class Affine(Model):
        def load(self, context):
            self.weight = torch.tensor([1.0, 2.0, 3.0, 4.0], device=context.device)

        def infer(self, inputs, batch):
            return {"y": inputs["x"] * self.weight + 1}
"""

SHOUT = """
    from moorage import Model

    class Shout(Model):
        def infer(self, inputs, batch):
            texts = [text.decode().upper() for text in inputs["x"]]
            width = batch.shapes["x"][1]
            return {"y": [texts[row * width : (row + 1) * width] for row in range(batch.rows)]}
"""


FLAT = """
    from moorage import Model

    class Flat(Model):
        def infer(self, inputs, batch):
            return {"y": [text.decode().upper() for text in inputs["x"]]}
"""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SyncClient]:
    folder = tmp_path_factory.mktemp("runtimes")
    root = folder / "models"
    write_torchscript(root)
    write_torch_export(root)
    write_onnx(root)
    model_folder(root, "simulated")
    write_python_model(root, "python", PYTHON_AFFINE)
    write_python_model(root, "shout", SHOUT, datatype="BYTES", shape="[-1]")
    write_python_model(root, "flat", FLAT, datatype="BYTES", shape="[1]")
    with running_server(root, folder) as server, SyncClient(server.grpc) as found:
        found.wait_until_ready(timeout_s=60.0)
        yield found


@pytest.mark.parametrize("runtime", ["python", "torchscript", "torch_export", "onnx"])
@pytest.mark.parametrize("rows", [1, 3])
def test_the_same_function_in_every_runtime(client: SyncClient, runtime: str, rows: int) -> None:
    x = np.arange(4 * rows, dtype=np.float32).reshape(rows, 4)
    y = client.infer(runtime, {"x": x})["y"]
    assert np.array_equal(y, x * np.array([1, 2, 3, 4], np.float32) + 1)


def test_a_simulated_model_answers_zeros_of_the_declared_shape(client: SyncClient) -> None:
    y = client.infer("simulated", {"x": np.ones((3, 4), np.float32)})["y"]
    assert y.dtype == np.float32
    assert np.array_equal(y, np.zeros((3, 4)))


def test_bytes_in_and_out_keep_their_rows_and_lengths(client: SyncClient) -> None:
    x = np.array([["", "aé"], ["x" * 5000, "y"]], dtype=object)
    y = client.infer("shout", {"x": x})["y"]
    assert y.tolist() == [[b"", "AÉ".encode()], [b"X" * 5000, b"Y"]]


def test_a_flat_list_is_taken_where_the_declared_shape_leaves_no_choice(client: SyncClient) -> None:
    x = np.array([["a"], ["bc"], [""]], dtype=object)
    assert client.infer("flat", {"x": x})["y"].tolist() == [[b"A"], [b"BC"], [b""]]


def test_weights_are_measured(client: SyncClient) -> None:
    memory = {model.name: model.memory_bytes for model in client.models()}
    assert memory["torchscript"] == memory["torch_export"] == memory["python"] == 16
    assert memory["onnx"] > 16
    assert memory["simulated"] == 0


def test_a_model_fails_on_what_the_declaration_does_not_allow(client: SyncClient) -> None:
    with pytest.raises(MoorageClientError, match="x"):
        client.infer("torchscript", {"x": np.ones((1, 5), np.float32)})
