"""Calls of the inference service as bytes go: nothing checked, nothing repaired, nothing tried again on this side."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import grpc
import numpy as np
from google.protobuf.message import Message
from google.rpc import error_details_pb2
from google.rpc.status_pb2 import Status
from numpy.typing import NDArray

from moorage_client.channels import CHANNEL_OPTIONS, Methods
from moorage_protocol import inference as pb
from moorage_protocol.services import INFERENCE_METHODS

Parameter = bool | int | float | str

_DETAILS_KEY = "grpc-status-details-bin"
_NO_RETRIES: tuple[tuple[str, int], ...] = (("grpc.enable_retries", 0), ("grpc.use_local_subchannel_pool", 1))


@dataclass(frozen=True)
class Tensor:
    """An input as it is to be sent: raw bytes, or typed contents by the name of their field, or both, or neither."""

    shape: Sequence[int]
    raw: bytes | None = None
    datatype: str = "FP32"
    name: str = "x"
    typed: Mapping[str, Sequence[Any]] | None = None


def rows_of(*firsts: float, width: int = 4) -> Tensor:
    """FP32 rows of that width, each filled with one number."""
    array = np.repeat(np.array(firsts, np.float32), width).reshape(len(firsts), width)
    return Tensor(array.shape, array.tobytes())


def request_of(
    model: str,
    *tensors: Tensor,
    parameters: Mapping[str, Parameter] | None = None,
    version: str = "",
    request_id: str = "",
) -> pb.ModelInferRequest:
    """A request with these inputs."""
    request = pb.ModelInferRequest(model_name=model, model_version=version, id=request_id)
    for tensor in tensors:
        added = request.inputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
        if tensor.typed is not None:
            added.contents.SetInParent()
            for field, values in tensor.typed.items():
                getattr(added.contents, field).extend(values)
        if tensor.raw is not None:
            request.raw_input_contents.append(tensor.raw)
    for key, value in (parameters or {}).items():
        request.parameters[key].CopyFrom(_parameter(value))
    return request


def _parameter(value: Parameter) -> pb.InferParameter:
    if isinstance(value, bool):
        return pb.InferParameter(bool_param=value)
    if isinstance(value, int):
        return pb.InferParameter(int64_param=value)
    return pb.InferParameter(double_param=value) if isinstance(value, float) else pb.InferParameter(string_param=value)


def output_of(response: pb.ModelInferResponse, dtype: str = "<f4") -> NDArray[Any]:
    """The first output of a raw response."""
    return np.frombuffer(response.raw_output_contents[0], dtype).reshape(response.outputs[0].shape)


@dataclass(frozen=True)
class Failure:
    """How a call failed, and after how many seconds. retry_after_s: as RetryInfo says, None without one."""

    code: str
    message: str
    seconds: float
    retry_after_s: float | None
    reason: str
    figures: Mapping[str, str]


def failure_of(error: Any, seconds: float = 0.0) -> Failure:
    """A failed call's status and details."""
    retry_info, info = error_details_pb2.RetryInfo(), error_details_pb2.ErrorInfo()
    retry_after_s = None
    for key, value in error.trailing_metadata() or ():
        if key == _DETAILS_KEY:
            for detail in Status.FromString(value).details:
                if detail.Unpack(retry_info):
                    retry_after_s = retry_info.retry_delay.seconds + retry_info.retry_delay.nanos / 1e9
                detail.Unpack(info)
    return Failure(error.code().name, error.details() or "", seconds, retry_after_s, info.reason, dict(info.metadata))


class Calls:
    """One channel to a server."""

    def __init__(self, target: str) -> None:
        self._channel = grpc.insecure_channel(target, [*CHANNEL_OPTIONS, *_NO_RETRIES])
        self._methods = Methods(self._channel)

    def close(self) -> None:
        self._channel.close()

    def __call__(self, method: str, request: Message, timeout_s: float = 30.0) -> Any:
        """The answer. Raises grpc.RpcError."""
        return self._methods[method](request, timeout=timeout_s)

    def infer(self, request: pb.ModelInferRequest, timeout_s: float = 30.0) -> pb.ModelInferResponse:
        response: pb.ModelInferResponse = self("ModelInfer", request, timeout_s)
        return response

    def start(self, request: Message, timeout_s: float = 30.0, method: str = "ModelInfer") -> "Call":
        """Begin a call and go on."""
        return Call(self._methods[method].future(request, timeout=timeout_s))

    def failure(self, request: Message, timeout_s: float = 30.0, method: str = "ModelInfer") -> Failure:
        """How a call fails. Raises AssertionError where it succeeds."""
        outcome = self.start(request, timeout_s, method).outcome()
        assert isinstance(outcome, Failure), f"expected a failure, got {str(outcome)[:500]}"
        return outcome

    def raw(self, method: str, body: bytes, timeout_s: float = 30.0) -> Any:
        """The outcome of a call whose request is these very bytes: the response's bytes, or a Failure."""
        callable_: Any = self._channel.unary_unary(INFERENCE_METHODS[method].path)
        return Call(callable_.future(body, timeout=timeout_s)).outcome()

    def stream(self, requests: Sequence[Message], timeout_s: float = 30.0, method: str = "ModelStreamInfer") -> Any:
        """A call that is ended after these requests; its answers are read by iterating. Raises grpc.RpcError then."""
        return self._methods[method](iter(requests), timeout=timeout_s)

    def load(self, model: str, timeout_s: float = 30.0) -> None:
        self("RepositoryModelLoad", pb.RepositoryModelLoadRequest(model_name=model), timeout_s)

    def unload(self, model: str, timeout_s: float = 30.0) -> None:
        self("RepositoryModelUnload", pb.RepositoryModelUnloadRequest(model_name=model), timeout_s)

    def is_live(self) -> bool:
        return bool(self("ServerLive", pb.ServerLiveRequest()).live)

    def is_ready(self) -> bool:
        return bool(self("ServerReady", pb.ServerReadyRequest()).ready)

    def is_model_ready(self, model: str) -> bool:
        return bool(self("ModelReady", pb.ModelReadyRequest(name=model)).ready)

    def index(self) -> dict[str, Any]:
        """The entries of RepositoryIndex by name."""
        return {entry.name: entry for entry in self("RepositoryIndex", pb.RepositoryIndexRequest()).models}

    def statistics(self) -> dict[str, pb.ModelStatistics]:
        """By name."""
        answer = self("ModelStatistics", pb.ModelStatisticsRequest())
        return {model.name: model for model in answer.model_stats}

    def memory_bytes(self) -> dict[str, int]:
        """What each model holds, for those that hold anything."""
        held = {name: sum(use.byte_size for use in model.memory_usage) for name, model in self.statistics().items()}
        return {name: count for name, count in held.items() if count}


class Call:
    """A call under way."""

    def __init__(self, future: Any) -> None:
        self._future = future
        self._began_s = time.monotonic()
        self.ended_s = 0.0
        future.add_done_callback(self._end)

    def _end(self, _: object) -> None:
        self.ended_s = time.monotonic()

    @property
    def is_done(self) -> bool:
        return bool(self._future.done())

    def cancel(self) -> None:
        self._future.cancel()

    def outcome(self) -> Any:
        """Wait for the response, or for how the call failed. The call's own deadline bounds the wait."""
        try:
            return self._future.result()
        except grpc.RpcError as error:
            return failure_of(error, self.seconds)

    @property
    def seconds(self) -> float:
        """How long the call took, or has taken so far."""
        return (self.ended_s or time.monotonic()) - self._began_s


@contextmanager
def calls_to(target: str) -> Iterator[Calls]:
    """A channel for the length of a block."""
    calls = Calls(target)
    try:
        yield calls
    finally:
        calls.close()
