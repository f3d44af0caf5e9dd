"""A small real gRPC server of the inference service, for tests of whatever talks to one. It echoes inputs.

It is a blocking server on threads: a second asyncio loop in this process would get in the way of the client's.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc

from moorage_protocol import inference as pb
from moorage_protocol.services import ADMIN_SERVICE, INFERENCE_METHODS, INFERENCE_SERVICE, Method
from tests.support.admin_service import Administration, admin_handlers

Metadata = tuple[tuple[str, str | bytes], ...]


@dataclass(frozen=True, slots=True)
class Failure:
    """How a call is to fail."""

    code: grpc.StatusCode
    message: str = "told to fail"
    metadata: Metadata = ()


@dataclass
class Behaviour:
    """What the server does; tests change it while it runs."""

    port: int = 0
    failures: list[Failure] = field(default_factory=list)
    requests: list[Any] = field(default_factory=list)
    index: pb.RepositoryIndexResponse = field(default_factory=pb.RepositoryIndexResponse)
    statistics: pb.ModelStatisticsResponse = field(default_factory=pb.ModelStatisticsResponse)
    metadata: pb.ModelMetadataResponse = field(default_factory=pb.ModelMetadataResponse)
    readiness: list[bool] = field(default_factory=list)
    corrupt: Callable[[pb.ModelInferResponse], object] | None = None
    hold: Callable[[], object] | None = None
    administration: Administration = field(default_factory=Administration)

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.port}"

    def answer(self, method: str, request: Any) -> Any:
        """The answer of a call that does not fail."""
        if method == "ModelInfer":
            return self._infer(request)
        answers: dict[str, Callable[[], Any]] = {
            "ServerLive": lambda: pb.ServerLiveResponse(live=True),
            "ServerReady": lambda: pb.ServerReadyResponse(ready=self.readiness.pop(0) if self.readiness else True),
            "ModelReady": lambda: pb.ModelReadyResponse(ready=request.name != "missing"),
            "ServerMetadata": lambda: pb.ServerMetadataResponse(name="echo", version="1", extensions=["statistics"]),
            "ModelMetadata": lambda: self.metadata,
            "ModelConfig": lambda: pb.ModelConfigResponse(config=pb.ModelConfig(name=request.name)),
            "ModelStatistics": lambda: self.statistics,
            "RepositoryIndex": lambda: self.index,
            "RepositoryModelLoad": pb.RepositoryModelLoadResponse,
            "RepositoryModelUnload": pb.RepositoryModelUnloadResponse,
        }
        return answers[method]()

    def _infer(self, request: pb.ModelInferRequest) -> pb.ModelInferResponse:
        if self.hold is not None:
            self.hold()
        response = pb.ModelInferResponse(model_name=request.model_name, model_version="1", id=request.id)
        for tensor, data in zip(request.inputs, request.raw_input_contents, strict=True):
            response.outputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
            response.raw_output_contents.append(data)
        if self.corrupt is not None:
            self.corrupt(response)
        return response


@contextmanager
def protocol_server(port: int = 0) -> Iterator[Behaviour]:
    """A running server, on a free port if none is asked for."""
    behaviour = Behaviour()
    server = grpc.server(ThreadPoolExecutor(max_workers=8))
    handlers = {method.name: _handler(behaviour, method) for method in _unary(INFERENCE_METHODS.values())}
    admin = grpc.method_handlers_generic_handler(ADMIN_SERVICE, admin_handlers(behaviour.administration))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(INFERENCE_SERVICE, handlers), admin))
    behaviour.port = server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    try:
        yield behaviour
    finally:
        behaviour.administration.lost.set()
        server.stop(grace=None).wait()


def _unary(methods: Any) -> Sequence[Method]:
    return [method for method in methods if not method.client_streaming and not method.server_streaming]


def _handler(behaviour: Behaviour, method: Method) -> Any:
    def handle(request: Any, context: grpc.ServicerContext) -> Any:
        behaviour.requests.append(request)
        if behaviour.failures:
            failure = behaviour.failures.pop(0)
            context.set_trailing_metadata(failure.metadata)
            context.abort(failure.code, failure.message)
        return behaviour.answer(method.name, request)

    return grpc.unary_unary_rpc_method_handler(
        handle,
        request_deserializer=method.request.FromString,
        response_serializer=method.response.SerializeToString,
    )
