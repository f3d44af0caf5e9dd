"""What can be known of a model before any request comes: tables that decoding and rendering look things up in."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from moorage.domain.errors import InvalidRequest
from moorage.domain.model import ModelKey, ModelSpec
from moorage.domain.tensor import MAX_RANK, Datatype, OutputTensor, TensorSpec
from moorage.rpc.wording import quote, shape_text
from moorage_protocol import inference as pb

_MAX_SIGNATURES = 1024
_MAX_HEADS = 256
_MAX_BYTES = 2**63 - 1


@dataclass(frozen=True, slots=True)
class InputRule:
    """One declared input. shape: the batch axis included, as -1. max_rows: of a request. splits: those with more rows
    than a run may have are split."""

    name: str
    datatype: Datatype
    datatype_text: str  # a plain str hashes and compares faster than the enum's member
    item_bytes: int
    shape: tuple[int, ...]
    max_rows: int
    splits: bool
    inspected: bool
    """Whether the bytes themselves can be wrong, not only their number."""

    @property
    def field(self) -> str:
        """How messages call this input."""
        return f"input {quote(self.name)}"

    def check(self, datatype: str, dims: Sequence[int]) -> tuple[tuple[int, ...], int]:
        """The shape that was sent, and its number of elements. Raises InvalidRequest."""
        if datatype != self.datatype_text:
            raise InvalidRequest(f"{self.field} datatype", expected=self.datatype_text, got=quote(datatype))
        if len(dims) != len(self.shape):
            raise self._bad_shape(dims)
        shape = tuple(dims)
        elements = 1
        for size, declared in zip(shape, self.shape, strict=True):
            if size < 0 or (size != declared and declared >= 0):
                raise self._bad_shape(shape)
            elements *= size
        if self.max_rows and not 1 <= shape[0] <= self.max_rows:
            raise self._bad_shape(shape)
        if elements == 0:
            self._check_strides(shape)
        return shape, elements

    def _check_strides(self, shape: tuple[int, ...]) -> None:
        """An empty tensor has no bytes to be counted, yet frameworks compute the strides of its other dimensions."""
        extent_bytes = self.item_bytes
        for size in shape:
            extent_bytes *= max(size, 1)
        if extent_bytes > _MAX_BYTES:
            expected = f"dimensions whose product fits {_MAX_BYTES} bytes"
            raise InvalidRequest(f"{self.field} shape", expected=expected, got=shape_text(shape))

    def _bad_shape(self, shape: Sequence[int]) -> InvalidRequest:
        rows = f" with 1 to {self.max_rows} rows" if self.max_rows else ""
        if self.max_rows and not self.splits and shape and shape[0] > self.max_rows:
            rows += " (more where its model.toml says batching.split_requests = true)"
        limit = f" (at most {MAX_RANK} dimensions)" if len(shape) > MAX_RANK else ""
        expected = f"{shape_text(self.shape)}{rows}{limit}"
        return InvalidRequest(f"{self.field} shape", expected=expected, got=shape_text(shape))


class Signature:
    """The tables of one loaded model, and the parts of its answers that do not change."""

    def __init__(self, key: ModelKey, spec: ModelSpec) -> None:
        self.key = key
        self.spec = spec
        self.inputs = {tensor.name: _rule(tensor, spec) for tensor in spec.inputs}
        self.order = tuple(self.inputs)
        self.required = frozenset(tensor.name for tensor in spec.inputs if not tensor.optional)
        self.varying = {tensor.name: tensor.shape for tensor in spec.inputs if tensor.varies}
        self.padded = frozenset(tensor.name for tensor in spec.inputs if tensor.padding is not None)
        self.outputs = frozenset(tensor.name for tensor in spec.outputs)
        self.opening = pb.ModelInferResponse(model_name=key.name, model_version=str(key.version)).SerializeToString()
        self._heads: dict[tuple[Any, ...], bytes] = {}

    def head(self, output: OutputTensor) -> bytes:
        """The serialized name, datatype and shape of an output, as a part of a ModelInferResponse."""
        described = (output.name, output.shape)
        head = self._heads.get(described)
        if head is None:
            meta = pb.ModelInferResponse.InferOutputTensor(
                name=output.name, datatype=str(output.datatype), shape=output.shape
            )
            head = pb.ModelInferResponse(outputs=[meta]).SerializeToString()
            if len(self._heads) >= _MAX_HEADS:  # shapes are the clients' choice, so their number is bounded here
                self._heads.clear()
            self._heads[described] = head
        return head


def _rule(tensor: TensorSpec, spec: ModelSpec) -> InputRule:
    max_rows = spec.max_request_rows
    return InputRule(
        name=tensor.name,
        datatype=tensor.datatype,
        datatype_text=tensor.datatype.value,
        item_bytes=tensor.datatype.item_bytes,
        shape=(-1, *tensor.shape) if max_rows else tensor.shape,
        max_rows=max_rows,
        splits=spec.batching.split_requests,
        inspected=tensor.datatype in (Datatype.BOOL, Datatype.BYTES),
    )


class Signatures:
    """Signatures of the models asked for lately."""

    def __init__(self) -> None:
        self._known: dict[ModelKey, Signature] = {}

    def of(self, key: ModelKey, spec: ModelSpec) -> Signature:
        """The model's signature, made at its first request."""
        signature = self._known.get(key)
        if signature is None or signature.spec is not spec:
            if len(self._known) >= _MAX_SIGNATURES:  # generations that are gone are dropped with the rest
                self._known.clear()
            signature = self._known[key] = Signature(key, spec)
        return signature
