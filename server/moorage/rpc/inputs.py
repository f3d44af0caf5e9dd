"""The inputs of one request, checked against the model's signature."""

from collections.abc import Sequence
from typing import NamedTuple

from moorage.domain.errors import InvalidRequest
from moorage.domain.tensor import Datatype, InputTensor
from moorage.rpc.contents import pack, typed_values
from moorage.rpc.parameters import refuse_tensor_parameters
from moorage.rpc.raw import check_size, inspect, row_ends
from moorage.rpc.signature import InputRule, Signature
from moorage.rpc.wire import Buffer
from moorage.rpc.wording import quote, quote_all
from moorage_protocol import inference as pb

_RAW_FIELD = "raw_input_contents"

_Sent = pb.ModelInferRequest.InferInputTensor


class Inputs(NamedTuple):
    """What a request brought. typed: whether it used typed contents, so that the answer does too."""

    tensors: tuple[InputTensor, ...]
    rows: int
    size_bytes: int
    typed: bool


class _Declared(NamedTuple):
    """An input whose declaration and amount of data are right. values: its typed elements; None where it is raw."""

    rule: InputRule
    shape: tuple[int, ...]
    elements: int
    data: Buffer
    values: Sequence[object] | None


async def read_inputs(signature: Signature, sent: Sequence[_Sent], raw: Sequence[Buffer]) -> Inputs:
    """Check every declaration first, then what the data itself can have wrong, and only then convert.

    Raises InvalidRequest, naming the input, and NotSupported. Large tensors are read in chunks, with a turn of the
    event loop between. Cancellation: nothing is left behind.
    """
    declared = _declarations(signature, sent, raw)
    rows = _rows(signature, declared)
    tensors = []
    size_bytes = 0
    for rule, shape, elements, given, values in declared:
        data = given
        if values is not None:
            data = await pack(rule, values)
        elif rule.inspected:
            await inspect(rule, data, elements)
        ends: tuple[int, ...] = ()
        if rule.splits and rows > 1 and rule.datatype is Datatype.BYTES:
            ends = await row_ends(rule, data, elements, rows)
        tensors.append(InputTensor(rule.name, rule.datatype, shape, data, ends))
        size_bytes += len(data)
    typed = not raw and any(tensor.HasField("contents") for tensor in sent)
    return Inputs(tuple(tensors), rows, size_bytes, typed)


def _declarations(signature: Signature, sent: Sequence[_Sent], raw: Sequence[Buffer]) -> list[_Declared]:
    """The inputs in the order in which the model declares them."""
    if raw and len(raw) != len(sent):
        names = quote_all([tensor.name for tensor in sent[:16]])
        expected = f"{len(sent)} entries, one for each input ({names})"
        raise InvalidRequest(_RAW_FIELD, expected=expected, got=str(len(raw)))
    found: dict[str, _Declared] = {}
    for index, tensor in enumerate(sent):
        name = tensor.name
        rule = signature.inputs.get(name)
        if rule is None:
            raise InvalidRequest(
                f"input {quote(name)}",
                expected=f"one of the model's inputs: {quote_all(signature.order)}",
                got="an unknown name",
            )
        if name in found:
            raise InvalidRequest(rule.field, expected="each input once", got="it twice")
        if tensor.parameters:
            refuse_tensor_parameters(tensor.parameters, rule.field)
        found[name] = _raw_input(rule, tensor, raw[index]) if raw else _typed_input(rule, tensor)
    if not found.keys() >= signature.required:
        missing = quote_all(sorted(signature.required - found.keys()))
        raise InvalidRequest(
            f"input {missing}", expected="every input that is not optional", got="a request without it"
        )
    if len(found) == 1:
        return list(found.values())
    return [found[name] for name in signature.order if name in found]


def _raw_input(rule: InputRule, tensor: _Sent, data: Buffer) -> _Declared:
    shape, elements = rule.check(tensor.datatype, tensor.shape)
    if tensor.HasField("contents") and tensor.contents.ListFields():
        got = f"data in {tensor.contents.ListFields()[0][0].name} and {_RAW_FIELD}"
        raise InvalidRequest(rule.field, expected=f"either typed contents or {_RAW_FIELD}", got=got)
    check_size(rule, data, elements)
    return _Declared(rule, shape, elements, data, None)


def _typed_input(rule: InputRule, tensor: _Sent) -> _Declared:
    shape, elements = rule.check(tensor.datatype, tensor.shape)
    values = typed_values(rule, tensor.contents, elements)
    return _Declared(rule, shape, elements, b"", values if elements else None)


def _rows(signature: Signature, declared: Sequence[_Declared]) -> int:
    """Rows along the batch axis; 1 for a model without one. Raises InvalidRequest where inputs disagree."""
    if not signature.spec.max_batch_size or not declared:
        return 1
    first = declared[0]
    for other in declared[1:]:
        if other.shape[0] != first.shape[0]:
            expected = f"{first.shape[0]} rows, as {first.rule.field} has"
            raise InvalidRequest(f"{other.rule.field} shape", expected=expected, got=f"{other.shape[0]} rows")
    return first.shape[0]
