"""The outputs of a request that was computed in pieces, put together in the order of their rows."""

from moorage.domain.request import InferenceRequest, Piece, RunResult
from moorage.domain.tensor import OutputTensor

Outputs = tuple[OutputTensor, ...]


class PiecesDiffer(Exception):
    """Outputs of two pieces that can't be put together; says why."""


class Joining:
    """What there is of a request's outputs, until all are there.

    started_s: of its first run. input_ns, infer_ns, output_ns: of all its runs.
    """

    def __init__(self, whole: InferenceRequest, started_s: float) -> None:
        self.whole = whole
        self.started_s = started_s
        self.input_ns = self.infer_ns = self.output_ns = 0
        self._last_run_id = 0
        self._rows = 0
        self._outputs: dict[int, Outputs] = {}

    def ran(self, run_id: int, result: RunResult) -> None:
        """Count a run that computed one piece, or several of them."""
        if run_id != self._last_run_id:
            self._last_run_id = run_id
            self.input_ns += result.input_ns
            self.infer_ns += result.infer_ns
            self.output_ns += result.output_ns

    def add(self, piece: Piece, rows: int, outputs: Outputs) -> bool:
        """Keep those outputs of a piece that were asked for; whether all pieces are there now.

        They are copied, as the next run overwrites them; those of the last piece are not, since `joined` comes at once.
        Raises PiecesDiffer.
        """
        names = self.whole.outputs
        wanted = tuple(output for output in outputs if not names or output.name in names)
        if self._outputs:
            _check_alike(next(iter(self._outputs.values())), wanted)
        self._rows += rows
        is_last = self._rows == self.whole.rows
        self._outputs[piece.first_row] = wanted if is_last else tuple(map(_copy, wanted))
        return is_last

    def joined(self) -> Outputs:
        """The whole request's outputs."""
        in_order = [self._outputs[first_row] for first_row in sorted(self._outputs)]
        return tuple(_join(parts, self.whole.rows) for parts in zip(*in_order, strict=True))


def _check_alike(some: Outputs, others: Outputs) -> None:
    for one, other in zip(some, others, strict=True):
        if one.shape[1:] != other.shape[1:]:
            raise PiecesDiffer(
                f"output '{one.name}': expected one shape beyond the rows for all pieces of a split request, "
                f"got {list(one.shape[1:])} and {list(other.shape[1:])}"
            )


def _copy(output: OutputTensor) -> OutputTensor:
    return OutputTensor(output.name, output.datatype, output.shape, bytes(output.data))


def _join(parts: tuple[OutputTensor, ...], rows: int) -> OutputTensor:
    first = parts[0]
    data = b"".join([part.data for part in parts])
    return OutputTensor(first.name, first.datatype, (rows, *first.shape[1:]), data)
