"""Whatever a request's rows and inputs are: its pieces together are the request, and their outputs its outputs."""

import asyncio
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from moorage.domain.pieces import pieces_of
from moorage.domain.request import InferenceRequest, Piece
from moorage.domain.tensor import Datatype, InputTensor, OutputTensor, element_count
from moorage.engine.joining import Joining
from moorage.rpc.raw import row_ends
from moorage.rpc.signature import InputRule
from tests.support.scheduling import make_request

shapes = st.lists(st.integers(0, 3), max_size=2).map(tuple)


def _rule(name: str, datatype: Datatype) -> InputRule:
    return InputRule(name, datatype, datatype.value, datatype.item_bytes, (-1,), 0, splits=True, inspected=True)


@st.composite
def tensors(draw: st.DrawFn, name: str, rows: int) -> InputTensor:
    """An input of any datatype, that many rows, and any shape beyond them, an empty one too."""
    datatype = draw(st.sampled_from(Datatype))
    shape = (rows, *draw(shapes))
    elements = element_count(shape)
    if datatype is not Datatype.BYTES:
        size_bytes = elements * datatype.item_bytes
        data = draw(st.binary(min_size=size_bytes, max_size=size_bytes))
        return InputTensor(name, datatype, shape, data)
    texts = draw(st.lists(st.binary(max_size=5), min_size=elements, max_size=elements))
    data = b"".join(struct.pack("<I", len(text)) + text for text in texts)
    ends = asyncio.run(row_ends(_rule(name, datatype), data, elements, rows))
    return InputTensor(name, datatype, shape, data, ends)


@st.composite
def requests(draw: st.DrawFn) -> InferenceRequest:
    rows = draw(st.integers(1, 40))
    inputs = tuple(draw(tensors(name, rows)) for name in "ab"[: draw(st.integers(1, 2))])
    size_bytes = sum(len(tensor.data) for tensor in inputs) + draw(st.sampled_from([0, 512]))
    return replace(make_request(7, rows=rows, size_bytes=size_bytes, priority=2), inputs=inputs)


@dataclass(frozen=True)
class Cut:
    """A request and how it is cut: most_rows for all of it, then again for every other piece."""

    request: InferenceRequest
    most_rows: int
    again: int

    def pieces(self) -> list[InferenceRequest]:
        next_id = count(100).__next__
        first = pieces_of(self.request, self.most_rows, next_id)
        cut = [pieces_of(piece, self.again, next_id) if odd % 2 else [piece] for odd, piece in enumerate(first)]
        return [piece for pieces in cut for piece in pieces]


cuts = st.builds(Cut, requests(), most_rows=st.integers(1, 12), again=st.integers(1, 6))


def _place(piece: InferenceRequest) -> Piece:
    assert piece.piece is not None
    return piece.piece


@given(cuts)
def test_the_inputs_of_all_pieces_are_those_of_the_request(cut: Cut) -> None:
    request, pieces = cut.request, cut.pieces()
    assert [_place(piece).first_row for piece in pieces] == [
        sum(before.rows for before in pieces[:index]) for index in range(len(pieces))
    ]
    for index, tensor in enumerate(request.inputs):
        parts = [piece.inputs[index] for piece in pieces]
        assert b"".join(part.data for part in parts) == tensor.data
        assert [part.shape for part in parts] == [(piece.rows, *tensor.shape[1:]) for piece in pieces]
        assert {(part.name, part.datatype) for part in parts} == {(tensor.name, tensor.datatype)}
        assert all(isinstance(part.data, memoryview) and part.data.obj is tensor.data for part in parts)


@given(cuts)
def test_pieces_are_within_the_bound_and_like_the_request_in_all_else(cut: Cut) -> None:
    request, pieces = cut.request, cut.pieces()
    assert sum(piece.rows for piece in pieces) == request.rows
    assert all(1 <= piece.rows <= cut.most_rows for piece in pieces)
    assert sum(piece.size_bytes for piece in pieces) == request.size_bytes
    assert len({piece.request_id for piece in pieces} | {request.request_id}) == len(pieces) + 1
    for piece in pieces:
        assert _place(piece).whole is request
        own = {"request_id": 7, "inputs": request.inputs, "rows": request.rows, "size_bytes": request.size_bytes}
        as_request = replace(piece, piece=None, **own)  # type: ignore[arg-type]
        assert all(getattr(as_request, name) == getattr(request, name) for name in request.__slots__)


def _as_outputs(piece: InferenceRequest) -> tuple[OutputTensor, ...]:
    """What a model answers that gives its inputs back: in memory that is overwritten soon."""
    return tuple(
        OutputTensor(tensor.name, tensor.datatype, tensor.shape, memoryview(bytearray(tensor.data)))
        for tensor in piece.inputs
    )


def _overwrite(outputs: Sequence[OutputTensor]) -> None:
    for output in outputs:
        output.data[:] = bytes(len(output.data))  # type: ignore[index]


@given(cut=cuts, data=st.data())
def test_the_outputs_come_in_the_order_of_the_rows_whenever_each_piece_was_computed(
    cut: Cut, data: st.DataObject
) -> None:
    wanted = data.draw(st.sampled_from([(), ("a",)]))
    request = replace(cut.request, outputs=wanted)
    pieces = data.draw(st.permutations(Cut(request, cut.most_rows, cut.again).pieces()))
    joining = Joining(request, started_s=0.0)
    for piece in pieces[:-1]:
        outputs = _as_outputs(piece)
        assert not joining.add(_place(piece), piece.rows, outputs)
        _overwrite(outputs)
    assert joining.add(_place(pieces[-1]), pieces[-1].rows, _as_outputs(pieces[-1]))
    joined = {output.name: (output.datatype, output.shape, bytes(output.data)) for output in joining.joined()}
    assert joined == {
        tensor.name: (tensor.datatype, tensor.shape, bytes(tensor.data))
        for tensor in request.inputs
        if not wanted or tensor.name in wanted
    }
