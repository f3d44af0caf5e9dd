"""From a model's outputs to the bytes of a ModelInferResponse."""

from collections.abc import Sequence

from moorage.domain.tensor import Datatype, OutputTensor, element_count
from moorage.rpc.contents import fill, has_typed_form
from moorage.rpc.signature import Signature
from moorage.rpc.wire import varint
from moorage_protocol import inference as pb

_ID_TAG = bytes((3 << 3 | 2,))
_RAW_OUTPUT_TAG = bytes((6 << 3 | 2,))

MAX_TYPED_ELEMENTS = 64 * 1024
MAX_TYPED_STRINGS = 16 * 1024
MAX_TYPED_BYTES = 1024 * 1024
"""Of all outputs together: their elements, those of datatype BYTES alone, and their size.

Typed contents are made element by element, on the event loop and in one go, as the outputs are views that end with the
call. So much of them takes about five milliseconds; a larger answer is raw, which every client reads, too.
"""


class Renderer:
    """Renders the answer to one request: asked raw, it answers raw; asked typed, typed where the outputs allow it.

    Serialized messages can be joined, so what never changes is serialized once, and each tensor is copied once, from
    the view it comes in to the response.
    """

    __slots__ = ("_client_id", "_outputs", "_signature", "_typed", "decoupled", "empty_final")

    def __init__(
        self, signature: Signature, client_id: str, outputs: tuple[str, ...], *, typed: bool, empty_final: bool = False
    ) -> None:
        """empty_final: see Options."""
        self.decoupled = signature.spec.decoupled
        self.empty_final = empty_final
        self._signature = signature
        self._client_id = client_id
        self._outputs = outputs
        self._typed = typed

    def __call__(self, outputs: tuple[OutputTensor, ...]) -> bytes:
        """The serialized response. KeyError: an output that was asked for is not there."""
        return b"".join(self.parts(outputs))

    def parts(self, outputs: tuple[OutputTensor, ...]) -> Sequence[bytes | memoryview]:
        """What joined is the serialized response. KeyError: an output that was asked for is not there.

        Without any outputs it is what says whose answers have ended.
        """
        if not outputs:
            return [self._signature.opening, *self._identity()]
        wanted: Sequence[OutputTensor] = outputs
        if self._outputs:
            by_name = {output.name: output for output in outputs}
            wanted = [by_name[name] for name in self._outputs]
        parts: list[bytes | memoryview] = [self._signature.opening, *self._identity()]
        if self._typed and _may_be_typed(wanted):
            parts += [_typed_part(output) for output in wanted]
        else:
            self._add_raw(parts, wanted)
        return parts

    def _identity(self) -> tuple[bytes, ...]:
        if not self._client_id:
            return ()
        text = self._client_id.encode()
        return _ID_TAG, varint(len(text)), text

    def _add_raw(self, parts: list[bytes | memoryview], wanted: Sequence[OutputTensor]) -> None:
        """All descriptions, then all data: exactly one entry for each output, an empty one too."""
        head = self._signature.head
        parts += [head(output) for output in wanted]
        for output in wanted:
            data = output.data
            parts += (_RAW_OUTPUT_TAG, varint(len(data)), data)


def _may_be_typed(outputs: Sequence[OutputTensor]) -> bool:
    """Whether all datatypes have a typed form, and the outputs are within its limits."""
    elements = strings = size_bytes = 0
    for output in outputs:
        if not has_typed_form(output.datatype):
            return False
        count = element_count(output.shape)
        elements += count
        strings += count if output.datatype is Datatype.BYTES else 0
        size_bytes += len(output.data)
    return elements <= MAX_TYPED_ELEMENTS and strings <= MAX_TYPED_STRINGS and size_bytes <= MAX_TYPED_BYTES


def _typed_part(output: OutputTensor) -> bytes:
    response = pb.ModelInferResponse()
    tensor = response.outputs.add(name=output.name, datatype=output.datatype.value, shape=output.shape)
    fill(tensor.contents, output.datatype, output.data, element_count(output.shape))
    return response.SerializeToString()
