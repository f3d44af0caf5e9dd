"""A request cut between its rows: pieces that run by themselves, and whose outputs in their order are its outputs."""

from collections.abc import Callable
from dataclasses import replace

from moorage.domain.request import InferenceRequest, Piece
from moorage.domain.tensor import Datatype, InputTensor


def pieces_of(request: InferenceRequest, most_rows: int, next_id: Callable[[], int]) -> list[InferenceRequest]:
    """Requests of at most so many rows each that together are this one, which may be a piece itself.

    Their inputs are views of its inputs, and all else is as it is of the request. What that counts in bytes besides its
    inputs is counted for the first.
    """
    whole, first_row = request.piece or Piece(request, 0)
    end_row = first_row + request.rows
    extra_bytes = request.size_bytes - sum(len(tensor.data) for tensor in request.inputs)
    pieces = []
    for row in range(first_row, end_row, most_rows):
        rows = min(most_rows, end_row - row)
        inputs = tuple(_rows_of(tensor, row, row + rows) for tensor in whole.inputs)
        size_bytes = extra_bytes + sum(len(tensor.data) for tensor in inputs)
        extra_bytes = 0
        piece = Piece(whole, row)
        pieces.append(
            replace(request, request_id=next_id(), inputs=inputs, rows=rows, size_bytes=size_bytes, piece=piece)
        )
    return pieces


def _rows_of(tensor: InputTensor, start: int, end: int) -> InputTensor:
    data = memoryview(tensor.data)[_offset(tensor, start) : _offset(tensor, end)]
    return InputTensor(tensor.name, tensor.datatype, (end - start, *tensor.shape[1:]), data)


def _offset(tensor: InputTensor, row: int) -> int:
    """Where in a tensor's data a row begins, or the last one ends."""
    if tensor.datatype is Datatype.BYTES:
        return tensor.row_ends[row - 1] if row else 0
    return row * len(tensor.data) // tensor.shape[0]
