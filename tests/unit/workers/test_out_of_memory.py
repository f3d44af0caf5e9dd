"""What counts as want of memory: by what the frameworks themselves raise, where they can be had."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch

from moorage.authoring import Batch, ModelContext
from moorage.domain.tensor import Datatype, TensorSpec
from moorage.workers.child.failures import failure_of
from moorage.workers.runtimes import RuntimeOptions, create_runtime, is_out_of_memory
from tests.support.onnx_models import ROW_BYTES, save_hungry

# So many rows take more than any process can have of address space.
TOO_MANY = 2**48 // ROW_BYTES


def of_torch(_: Path) -> None:
    torch.empty(2**46)


def of_torchscript(_: Path) -> None:
    unit = torch.jit.CompilationUnit("def make(rows: int):\n    return torch.empty([rows])\n")
    unit.make(2**46)


def of_onnxruntime(folder: Path) -> None:
    """As the server has it compute."""
    save_hungry(folder / "model.onnx")
    x, y = (TensorSpec(name, Datatype.FP32, (4,)) for name in ("x", "y"))
    runtime = create_runtime("onnx", RuntimeOptions((x,), (y,), batched=True))
    runtime.load(ModelContext(name="hungry", version=1, device="cpu", path=folder, parameters={}))
    few = runtime.infer({"x": np.zeros((2, 4), np.float32)}, Batch((), 2, {}))
    assert few["y"].tolist() == [[1.0] * 4] * 2
    runtime.infer({"x": np.zeros((TOO_MANY, 4), np.float32)}, Batch((), TOO_MANY, {}))


def of_onnxruntime_without_its_arena(folder: Path) -> None:
    """As a model of runtime = "python" may."""
    save_hungry(folder / "model.onnx")
    options = onnxruntime.SessionOptions()
    options.enable_cpu_mem_arena = False
    session = onnxruntime.InferenceSession(folder / "model.onnx", options, providers=["CPUExecutionProvider"])
    session.run(None, {"x": np.zeros((TOO_MANY, 4), np.float32)})


@pytest.mark.parametrize("fail", [of_torch, of_torchscript, of_onnxruntime, of_onnxruntime_without_its_arena])
def test_memory_that_really_runs_out_is_recognised(tmp_path: Path, fail: Callable[[Path], None]) -> None:
    with pytest.raises(Exception, match="alloc") as caught:
        fail(tmp_path)
    assert is_out_of_memory(caught.value)
    assert failure_of(caught.value).out_of_memory


@pytest.mark.parametrize(
    "text",
    [
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
        "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
        "The following operation failed in the TorchScript interpreter.\nRuntimeError: CUDA out of memory. Tried to",
    ],
)
def test_what_libraries_of_a_card_say_counts_too(text: str) -> None:
    assert is_out_of_memory(RuntimeError(text))


def test_other_failures_of_onnxruntime_are_none(tmp_path: Path) -> None:
    save_hungry(tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    for x in (np.zeros((2, 5), np.float32), np.zeros((2, 4), np.float64)):
        with pytest.raises(Exception, match="ONNXRuntimeError") as caught:
            session.run(None, {"x": x})
        assert not is_out_of_memory(caught.value)


class Unspeakable:
    def __str__(self) -> str:
        raise AssertionError


@pytest.mark.parametrize("error", [RuntimeError("no row"), ValueError("std::bad_alloc"), RuntimeError(Unspeakable())])
def test_other_failures_are_none(error: Exception) -> None:
    assert not is_out_of_memory(error)
