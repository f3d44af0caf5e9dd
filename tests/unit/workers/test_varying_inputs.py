"""Inputs of which the requests' tensors differ: laid out by the server, read by the worker, told to the model."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from moorage.authoring import BatchMember, ModelContext
from moorage.domain.request import InferenceRequest
from moorage.domain.tensor import Datatype, Element, InputTensor, TensorSpec
from moorage.workers import segment
from moorage.workers.child.members import members_of
from moorage.workers.lane_messages import Execute, Member, TensorReference
from moorage.workers.lanes import _write_inputs
from moorage.workers.runtimes import Arrays, BrokenContract, RuntimeOptions, SharedMemory, create_runtime
from moorage.workers.runtimes.onnx import NumpyArrays
from moorage.workers.runtimes.torch_arrays import DTYPES, TorchArrays
from tests.support.scheduling import make_request
from tests.support.stepped_models import RUNNING, code_of
from tests.support.toy_models import ECHO

Shape = tuple[int, ...]
CODES = {
    Datatype.BOOL: "?", Datatype.UINT8: "u1", Datatype.UINT16: "u2", Datatype.UINT32: "u4", Datatype.UINT64: "u8",
    Datatype.INT8: "i1", Datatype.INT16: "i2", Datatype.INT32: "i4", Datatype.INT64: "i8",
    Datatype.FP16: "f2", Datatype.FP32: "f4", Datatype.FP64: "f8",
}  # fmt: skip
PADDINGS = [
    (Datatype.BOOL, True),
    (Datatype.UINT8, 255),
    (Datatype.UINT16, 2**16 - 1),
    (Datatype.UINT32, 2**32 - 1),
    (Datatype.UINT64, 2**64 - 1),
    (Datatype.INT8, -128),
    (Datatype.INT16, -(2**15)),
    (Datatype.INT32, -(2**31)),
    (Datatype.INT64, -(2**63)),
    (Datatype.FP16, -65504.0),
    (Datatype.FP32, -math.inf),
    (Datatype.FP64, 1e308),
]


@dataclass(frozen=True)
class Run:
    """What the worker is told of a run, and where it finds the rest."""

    memory: SharedMemory
    inputs: Sequence[TensorReference]
    members: Sequence[BatchMember]

    def read(self, arrays: Arrays) -> Any:
        return arrays.read(self.memory, self.inputs[0])


def request_of(spec: TensorSpec, *parts: NDArray[Any]) -> InferenceRequest:
    """With one tensor for each name: that of spec, and then others that do not vary."""
    names = [spec.name, *(f"plain{number}" for number in range(len(parts) - 1))]
    tensors = [
        InputTensor(name, spec.datatype, part.shape, part.tobytes()) for name, part in zip(names, parts, strict=True)
    ]
    return replace(make_request(rows=len(parts[0])), inputs=tuple(tensors))


def run_of(spec: TensorSpec, requests: list[InferenceRequest]) -> Run:
    memory = segment.attach(segment.create())
    inputs, end = _write_inputs(memory, requests, 0, {spec.name: spec} if spec.varies else {})
    members = tuple(Member(f"id{number}", request.rows, {"k": number}) for number, request in enumerate(requests))
    execute = Execute(1, sum(request.rows for request in requests), tuple(inputs), members, end)
    received = msgspec.msgpack.decode(msgspec.msgpack.encode(execute), type=Execute)
    return Run(SharedMemory(memory), received.inputs, members_of(received))


def run_with(spec: TensorSpec, *parts: NDArray[Any]) -> Run:
    return run_of(spec, [request_of(spec, part) for part in parts])


def filled_up(parts: Sequence[NDArray[Any]], padding: Element) -> NDArray[Any]:
    """The same in the slowest way: element by element."""
    largest = [max(sizes) for sizes in zip(*(part.shape[1:] for part in parts), strict=True)]
    whole = np.full((sum(map(len, parts)), *largest), padding, parts[0].dtype)
    row = 0
    for part in parts:
        for (within, *index), value in np.ndenumerate(part):
            whole[(row + within, *index)] = value
        row += len(part)
    return whole


def some(datatype: Datatype, *shapes: Shape) -> list[NDArray[Any]]:
    """Tensors without a value that is used for padding."""
    chance = np.random.default_rng(1)
    return [
        chance.integers(0, 2 if datatype is Datatype.BOOL else 100, shape).astype(CODES[datatype]) for shape in shapes
    ]


@pytest.mark.parametrize("arrays", [TorchArrays("cpu"), NumpyArrays()])
@pytest.mark.parametrize(("datatype", "padding"), PADDINGS)
def test_padding_of_every_datatype(arrays: Arrays, datatype: Datatype, padding: Element) -> None:
    parts = some(datatype, (2, 3), (1, 5), (3, 0))
    run = run_with(TensorSpec("x", datatype, (-1,), padding=padding), *parts)
    given = run.read(arrays)
    array = given.numpy() if isinstance(given, torch.Tensor) else given
    assert given.dtype == (DTYPES[datatype] if isinstance(arrays, TorchArrays) else np.dtype(CODES[datatype]))
    assert np.array_equal(array, filled_up(parts, padding))
    assert [member.shapes for member in run.members] == [{"x": (2, 3)}, {"x": (1, 5)}, {"x": (3, 0)}]
    assert run.inputs[0].shape == (6, 5)


def test_padding_of_brain_floats_and_with_no_number() -> None:
    spec = TensorSpec("x", Datatype.BF16, (-1,), padding=-2.0)
    parts = [torch.ones(shape, dtype=torch.bfloat16).view(torch.int16).numpy() for shape in ((1, 2), (1, 1))]
    given = run_with(spec, *parts).read(TorchArrays("cpu"))
    assert given.dtype is torch.bfloat16
    assert given.tolist() == [[1.0, 1.0], [1.0, -2.0]]
    nothing = run_with(TensorSpec("x", Datatype.FP32, (-1,), padding=math.nan), *some(Datatype.FP32, (1, 2), (1, 1)))
    assert nothing.read(TorchArrays("cpu")).isnan().tolist() == [[False, False], [False, True]]


def test_what_needs_no_padding_is_a_view() -> None:
    spec = TensorSpec("x", Datatype.FP32, (-1,), padding=0.0)
    for parts in (some(Datatype.FP32, (2, 3)), some(Datatype.FP32, (2, 3), (1, 3))):
        run = run_with(spec, *parts)
        given = run.read(TorchArrays("cpu"))
        assert given.data_ptr() == run.memory.address
        assert np.array_equal(given.numpy(), np.concatenate(parts))
        assert [member.shapes["x"] for member in run.members] == [part.shape for part in parts]


@pytest.mark.parametrize("shapes", [[(1, 4)], [(1, 4), (2, 4)], [(2, 3), (1, 7), (1, 0), (3, 1)]])
def test_a_ragged_input_is_a_list_of_views(shapes: list[Shape]) -> None:
    parts = some(Datatype.FP32, *shapes)
    run = run_with(TensorSpec("x", Datatype.FP32, (-1,), ragged=True), *parts)
    given = run.read(TorchArrays("cpu"))
    assert isinstance(given, list)
    assert len(given) == len(parts)
    assert all(np.array_equal(tensor.numpy(), part) for tensor, part in zip(given, parts, strict=True))
    assert given[0].data_ptr() == run.memory.address
    assert run.inputs[0].shape == (sum(map(len, parts)), -1)
    assert [member.shapes["x"] for member in run.members] == shapes


def test_ragged_bytes_are_a_flat_list_for_each_request() -> None:
    spec = TensorSpec("x", Datatype.BYTES, (-1,), ragged=True)
    requests = []
    for shape, words in (((2, 2), [b"a", b"", b"ccc", b"d"]), ((1, 0), []), ((1, 1), ["\u00e9".encode()])):
        data = b"".join(len(word).to_bytes(4, "little") + word for word in words)
        tensor = InputTensor("x", Datatype.BYTES, shape, data)
        requests.append(replace(make_request(rows=shape[0]), inputs=(tensor,)))
    given = run_of(spec, requests).read(TorchArrays("cpu"))
    assert given == [[b"a", b"", b"ccc", b"d"], [], ["\u00e9".encode()]]


def test_inputs_that_vary_and_others_side_by_side() -> None:
    spec = TensorSpec("x", Datatype.INT64, (-1,), padding=-1)
    firsts, plain = some(Datatype.INT64, (2, 3), (1, 5)), some(Datatype.INT64, (2, 7), (1, 7))
    run = run_of(spec, [request_of(spec, *pair) for pair in zip(firsts, plain, strict=True)])
    padded, others = (TorchArrays("cpu").read(run.memory, item) for item in run.inputs)
    assert np.array_equal(padded.numpy(), filled_up(firsts, -1))
    assert np.array_equal(others.numpy(), np.concatenate(plain))
    assert run.members == [
        BatchMember("id0", 2, {"k": 0}, {"x": (2, 3), "plain0": (2, 7)}),
        BatchMember("id1", 1, {"k": 1}, {"x": (1, 5), "plain0": (1, 7)}),
    ]


def test_members_of_a_plain_model_have_their_shapes_too() -> None:
    spec = TensorSpec("x", Datatype.FP32, (3,))
    run = run_with(spec, *some(Datatype.FP32, (2, 3), (1, 3), (2, 3)))
    assert [member.shapes for member in run.members] == [{"x": (2, 3)}, {"x": (1, 3)}, {"x": (2, 3)}]
    unbatched = run_with(spec, *some(Datatype.FP32, (3,)))
    assert [member.shapes for member in unbatched.members] == [{"x": (3,)}]


@given(data=st.data(), padding=st.none() | st.integers(-(2**31), 2**31 - 1), fixed=st.integers(1, 3))
def test_whatever_the_shapes_the_model_sees_what_was_sent(data: st.DataObject, padding: int | None, fixed: int) -> None:
    shapes = st.tuples(st.integers(1, 3), st.integers(0, 6), st.just(fixed), st.integers(0, 3))
    parts = some(Datatype.INT32, *data.draw(st.lists(shapes, min_size=1, max_size=8)))
    spec = TensorSpec("x", Datatype.INT32, (-1, fixed, -1), ragged=padding is None, padding=padding)
    run = run_with(spec, *parts)
    assert [member.shapes["x"] for member in run.members] == [part.shape for part in parts]
    given = run.read(TorchArrays("cpu"))
    if padding is None:
        assert [tensor.shape for tensor in given] == [part.shape for part in parts]
        assert all(np.array_equal(tensor.numpy(), part) for tensor, part in zip(given, parts, strict=True))
    else:
        assert np.array_equal(given.numpy(), filled_up(parts, padding))
        assert np.array_equal(run.read(NumpyArrays()), given.numpy())


RAGGED = TensorSpec("x", "FP32", (-1,), ragged=True)
PADDED = TensorSpec("x", "FP32", (-1,), padding=0.0)


@pytest.mark.parametrize("runtime", ["torchscript", "torch_export", "onnx"])
def test_runtimes_that_take_tensors_take_no_lists(runtime: str) -> None:
    told = rf"input 'x': ragged is not supported by runtime = '{runtime}', which takes tensors: use padding"
    with pytest.raises(BrokenContract, match=told):
        create_runtime(runtime, RuntimeOptions((RAGGED,), (), batched=True))
    create_runtime(runtime, RuntimeOptions((PADDED,), (), batched=True))


@pytest.mark.parametrize("spec", [RAGGED, PADDED])
def test_a_stepped_model_has_no_use_for_either(tmp_path: Path, spec: TensorSpec) -> None:
    told = "input 'x': ragged and padding are for models that compute a batch at once"
    options = RuntimeOptions((spec,), (), batched=True)
    context = ModelContext(name="m", version=1, device="cpu", path=tmp_path, parameters={})
    (tmp_path / "model.py").write_text(code_of(RUNNING))
    with pytest.raises(BrokenContract, match=told):
        create_runtime("python", options).load(context)
    (tmp_path / "model.py").write_text(code_of(ECHO))
    create_runtime("python", options).load(context)
    with pytest.raises(BrokenContract, match=told):
        create_runtime("simulated", replace(options, steps=2))
    create_runtime("simulated", options)
