"""Small models of runtime = "onnx"."""

from pathlib import Path

import onnx
from onnx import TensorProto, helper

# What each row of an input takes, while it runs, in the model of save_hungry.
ROW_BYTES = 32 * 2**20


def save_hungry(path: Path) -> None:
    """y = x + 1, of FP32 [rows, 4], which takes ROW_BYTES more for each row."""
    width = helper.make_tensor("width", TensorProto.INT64, [1], [ROW_BYTES // 4])
    one = helper.make_tensor("one", TensorProto.FLOAT, [1], [1.0])
    nodes = [
        helper.make_node("Shape", ["x"], ["rows"], start=0, end=1),
        helper.make_node("Concat", ["rows", "width"], ["shape"], axis=0),
        helper.make_node("ConstantOfShape", ["shape"], ["ones"], value=one),
        helper.make_node("ReduceMax", ["ones"], ["most"], axes=[1]),
        helper.make_node("Add", ["x", "most"], ["y"]),
    ]
    tensors = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", 4]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "hungry", tensors[:1], tensors[1:], [width])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(path))
