"""What a request asks for besides its tensors: from its `parameters`, and from the call's metadata."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from moorage.domain.errors import InvalidRequest, NotSupported
from moorage.domain.request import ParameterValue
from moorage.rpc.wording import quote
from moorage_protocol import inference as pb

MAX_PRIORITY = 5
MAX_PARAMETERS = 256
MAX_PARAMETER_BYTES = 1024 * 1024
"""Of all keys and texts together. They travel with a run's message to the worker, unlike tensors; so does the id."""
_MICROSECONDS = 1_000_000
_MAX_DIGITS = 20  # of the largest 64-bit number

_EMPTY_FINAL = "triton_enable_empty_final_response"
_IGNORED = frozenset({_EMPTY_FINAL, "binary_data_output"})  # nothing that a model is told
_SEQUENCES = ("sequence_id", "sequence_start", "sequence_end")
_SHARED_MEMORY = frozenset({"shared_memory_region", "shared_memory_byte_size", "shared_memory_offset"})
_METADATA_OPTIONS = frozenset({"priority", "timeout"})
_OWN_PREFIX = "moorage_"

Metadata = Iterable[tuple[str, str | bytes]]
Parameters = Mapping[str, pb.InferParameter]


@dataclass(frozen=True, slots=True)
class Options:
    """priority: 1 highest to 5, 0 the model's default. timeout_s: as the client asked. custom: for the model.

    empty_final: whether the end of a decoupled model's answers is to be told where the last came without it.
    """

    priority: int = 0
    timeout_s: float | None = None
    custom: Mapping[str, ParameterValue] = field(default_factory=dict)
    empty_final: bool = False


_DEFAULTS = Options()


def read_options(parameters: Parameters, metadata: Metadata) -> Options:
    """The options of one request; a parameter wins over metadata of the same name.

    Raises InvalidRequest (a reserved name, or a value out of range) and NotSupported (sequences).
    """
    found: dict[str, ParameterValue] = {
        key: value
        for key, value in metadata
        if (key in _METADATA_OPTIONS or key.startswith(_OWN_PREFIX)) and isinstance(value, str)
    }
    if parameters:
        found |= _given(parameters)
    elif not found:
        return _DEFAULTS
    priority = found.pop("priority", None)
    timeout = found.pop("timeout", None)
    return Options(
        priority=0 if priority is None else _priority(priority),
        timeout_s=None if timeout is None else _timeout_s(timeout),
        custom=found,
        empty_final=_EMPTY_FINAL in parameters and parameters[_EMPTY_FINAL].bool_param,
    )


def refuse_tensor_parameters(parameters: Parameters, tensor: str) -> None:
    """Raise for what an input or output can't ask of this server; anything else it may say is a hint."""
    asked = _SHARED_MEMORY.intersection(parameters)
    if asked:
        raise NotSupported(f"{tensor}: this server has no shared-memory extension ({min(asked)}); send the data")
    if "classification" in parameters:
        raise NotSupported(f"{tensor}: this server has no classification extension")


def _given(parameters: Parameters) -> dict[str, ParameterValue]:
    if len(parameters) > MAX_PARAMETERS:
        raise InvalidRequest("parameters", expected=f"at most {MAX_PARAMETERS}", got=str(len(parameters)))
    given: dict[str, ParameterValue] = {}
    for key, parameter in parameters.items():
        if key in _IGNORED:
            continue
        if key in _SEQUENCES:  # clients send all of them, in no certain order
            asked = next(name for name in _SEQUENCES if name in parameters)
            raise NotSupported(f"parameter {quote(asked)}: this server has no sequence extension")
        if key == "headers" or key.startswith("triton_"):
            raise InvalidRequest(
                f"parameter {quote(key)}", expected="a name that is not reserved", got="a reserved one"
            )
        given[key] = _value(key, parameter)
    size_bytes = sum(len(key) + (len(value) if isinstance(value, str) else 0) for key, value in given.items())
    if size_bytes > MAX_PARAMETER_BYTES:
        raise InvalidRequest("parameters", expected=f"at most {MAX_PARAMETER_BYTES} bytes", got=str(size_bytes))
    return given


def _value(key: str, parameter: pb.InferParameter) -> ParameterValue:
    choice = parameter.WhichOneof("parameter_choice")
    if choice is None:
        raise InvalidRequest(f"parameter {quote(key)}", expected="a value", got="none")
    value: ParameterValue = getattr(parameter, choice)
    return value


def _priority(value: ParameterValue) -> int:
    number = _whole(value)
    if number is None or not 0 <= number <= MAX_PRIORITY:
        expected = f"a whole number from 0 (the model's default) and 1 (highest) to {MAX_PRIORITY} (lowest)"
        raise InvalidRequest("priority", expected=expected, got=quote(value))
    return number


def _timeout_s(value: ParameterValue) -> float:
    number = _whole(value)
    if number is None or number <= 0:
        raise InvalidRequest("timeout", expected="a whole number of microseconds above 0", got=quote(value))
    return number / _MICROSECONDS


def _whole(value: ParameterValue) -> int | None:
    """The number that an integer or a string of digits stands for. A bool is neither."""
    if isinstance(value, str):
        return int(value) if value.isascii() and value.isdigit() and len(value) <= _MAX_DIGITS else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None
