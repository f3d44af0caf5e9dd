"""Models whose inputs may vary within a run, in every runtime that can take them."""

import warnings
from pathlib import Path
from textwrap import dedent

import onnx
import torch
from onnx import TensorProto, helper

_MANIFEST = """
runtime = "{runtime}"
max_batch_size = 8
{top}
inputs = [{{ name = "x", datatype = "{datatype}", shape = [-1], {how} }}]
outputs = [{outputs}]
[batching]
max_queue_delay_s = 0.02
low_watermark = 8
"""

# What it was given of each row, bit for bit, and how many requests were in the run.
RAGGED = """
    import torch
    from moorage import Model

    class Ragged(Model):
        def infer(self, inputs, batch):
            assert isinstance(inputs["x"], list) and len(inputs["x"]) == len(batch.requests)
            assert batch.shapes["x"] == (batch.rows, -1)
            for x, member in zip(inputs["x"], batch.requests):
                assert tuple(x.shape) == member.shapes["x"]
            rows = [[row.numpy().tobytes()] for x in inputs["x"] for row in x]
            return {"seen": rows, "members": torch.full((batch.rows, 1), len(batch.requests))}
"""

# The same of an input of BYTES, joined by commas.
RAGGED_BYTES = """
    import torch
    from moorage import Model

    class RaggedBytes(Model):
        def infer(self, inputs, batch):
            rows = []
            for words, member in zip(inputs["x"], batch.requests):
                count, width = member.shapes["x"]
                rows += [[b",".join(words[row * width : (row + 1) * width])] for row in range(count)]
            return {"seen": rows, "members": torch.full((batch.rows, 1), len(batch.requests))}
"""

# The padded rows as they are, and of each row how long it was.
PADDED = """
    import torch
    from moorage import Model

    class Padded(Model):
        def infer(self, inputs, batch):
            assert tuple(inputs["x"].shape) == batch.shapes["x"]
            lengths = [member.shapes["x"][1] for member in batch.requests for _ in range(member.rows)]
            return {"y": inputs["x"], "length": torch.tensor(lengths)[:, None]}
"""

_SEEN = '{ name = "seen", datatype = "BYTES", shape = [1] }, { name = "members", datatype = "INT64", shape = [1] }'
_ROWS = '{ name = "y", datatype = "FP32", shape = [-1] }, { name = "length", datatype = "INT64", shape = [1] }'
_SUMS = '{ name = "y", datatype = "FP32", shape = [1] }'


class Sum(torch.nn.Module):
    """Of each row."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sum(1, keepdim=True)


def write_varying_models(root: Path) -> None:
    """Five of runtime python, and `sum_torchscript`, `sum_torch_export` and `sum_onnx`."""
    _write_python(root, "ragged", RAGGED, "FP32", "ragged = true", _SEEN)
    _write_python(root, "ragged_bytes", RAGGED_BYTES, "BYTES", "ragged = true", _SEEN)
    _write_python(root, "padded", PADDED, "FP32", "padding = -1.5", _ROWS)
    _write_python(root, "equal", PADDED, "FP32", "optional = false", _ROWS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.save(torch.jit.script(Sum()), _sums(root, "torchscript") / "model.pt")
    rows, length = torch.export.Dim("rows", min=1, max=8), torch.export.Dim("length", min=1, max=1000)
    program = torch.export.export(Sum(), (torch.ones(2, 4),), dynamic_shapes={"x": {0: rows, 1: length}})
    torch.export.save(program, _sums(root, "torch_export") / "model.pt2")
    onnx.save(_onnx_sum(), str(_sums(root, "onnx") / "model.onnx"))
    refused = write_model(root, "refused", "torchscript", "FP32", "ragged = true", _SUMS, top='load = "explicit"')
    (refused / "model.pt").write_bytes((root / "sum_torchscript" / "1" / "model.pt").read_bytes())


def write_model(root: Path, name: str, runtime: str, datatype: str, how: str, outputs: str, *, top: str = "") -> Path:
    """A model with an input `x` of that datatype and kind, without its file; the folder for that."""
    folder = root / name
    (folder / "1").mkdir(parents=True)
    manifest = _MANIFEST.format(runtime=runtime, datatype=datatype, how=how, outputs=outputs, top=top)
    (folder / "model.toml").write_text(manifest)
    return folder / "1"


def _write_python(root: Path, name: str, code: str, datatype: str, how: str, outputs: str) -> None:
    (write_model(root, name, "python", datatype, how, outputs) / "model.py").write_text(dedent(code))


def _sums(root: Path, runtime: str) -> Path:
    return write_model(root, f"sum_{runtime}", runtime, "FP32", "padding = 0", _SUMS)


def _onnx_sum() -> onnx.ModelProto:
    axes = helper.make_tensor("axes", TensorProto.INT64, [1], [1])
    node = helper.make_node("ReduceSum", ["x", "axes"], ["y"], keepdims=1)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", "length"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", 1])
    graph = helper.make_graph([node], "sum", [x], [y], [axes])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
