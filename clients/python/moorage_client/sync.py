"""The blocking client: the same operations over a blocking channel."""

from collections.abc import Coroutine, Mapping, Sequence
from time import sleep
from types import TracebackType
from typing import Any, Self, TypeVar

import grpc
from google.protobuf.message import Message

from moorage_client.channels import CHANNEL_OPTIONS, Methods
from moorage_client.errors import Cancelled, from_status
from moorage_client.messages import ModelInfo, ModelMetadata, ParameterValue, ServerMetadata
from moorage_client.operations import Operations
from moorage_client.tensors import Array, Tensor
from moorage_protocol import inference as pb

Answer = TypeVar("Answer", bound=Message)
Result = TypeVar("Result")


class SyncClient:
    """A blocking client of one server, safe to share between threads. Use as `with SyncClient("host:port") as client:`.

    Its methods are those of `moorage_client.operations.Operations`, where each is described, and raise the same errors.

    attempts: tries per call, the first included.
    timeout_s: of calls that compute nothing; `infer`, `load` and `unload` take their own.
    metadata: sent with every call, such as an authorization header.
    """

    def __init__(
        self,
        target: str,
        *,
        attempts: int = 3,
        timeout_s: float | None = 30.0,
        credentials: grpc.ChannelCredentials | None = None,
        metadata: tuple[tuple[str, str], ...] = (),
    ) -> None:
        self._transport = _BlockingTransport(target, credentials, metadata)
        self._operations = Operations(self._transport, attempts=attempts, timeout_s=timeout_s)

    def is_live(self) -> bool:
        """Whether the server runs."""
        return _run(self._operations.is_live())

    def is_ready(self) -> bool:
        """Whether the server takes work."""
        return _run(self._operations.is_ready())

    def is_model_ready(self, model: str, version: str = "") -> bool:
        """Whether a request for the model would be accepted now."""
        return _run(self._operations.is_model_ready(model, version))

    def server_metadata(self) -> ServerMetadata:
        """Name, version and extensions of the server."""
        return _run(self._operations.server_metadata())

    def metadata(self, model: str, version: str = "") -> ModelMetadata:
        """Inputs and outputs of a model."""
        return _run(self._operations.metadata(model, version))

    def config(self, model: str, version: str = "") -> pb.ModelConfig:
        """The model's configuration, as the protocol's own message."""
        return _run(self._operations.config(model, version))

    def models(self) -> tuple[ModelInfo, ...]:
        """Every version of every model in the repository."""
        return _run(self._operations.models())

    def statistics(self, model: str = "", version: str = "") -> tuple[pb.ModelStatistics, ...]:
        """Counts and durations of a model, or of all; as the protocol's own messages."""
        return _run(self._operations.statistics(model, version))

    def load(self, model: str, *, timeout_s: float | None = None) -> None:
        """Load a model, or load it again; returns when it is ready."""
        _run(self._operations.load(model, timeout_s=timeout_s))

    def unload(self, model: str, *, timeout_s: float | None = None) -> None:
        """Unload a model, after the work it has accepted."""
        _run(self._operations.unload(model, timeout_s=timeout_s))

    def infer(  # noqa: PLR0913 the protocol's options, each with a default
        self,
        model: str,
        inputs: Mapping[str, Tensor],
        *,
        outputs: Sequence[str] = (),
        version: str = "",
        parameters: Mapping[str, ParameterValue] | None = None,
        priority: int = 0,
        timeout_s: float | None = None,
        request_id: str = "",
    ) -> dict[str, Array]:
        """Run the model; all its outputs by name, or those named in `outputs`."""
        return _run(
            self._operations.infer(
                model,
                inputs,
                outputs=outputs,
                version=version,
                parameters=parameters,
                priority=priority,
                timeout_s=timeout_s,
                request_id=request_id,
            )
        )

    def wait_until_ready(self, timeout_s: float, models: Sequence[str] = ()) -> None:
        """Wait for the server to be reachable and ready, and for these models to be."""
        _run(self._operations.wait_until_ready(timeout_s, models))

    def close(self) -> None:
        """End the connection at once; calls under way in other threads raise Cancelled."""
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _run(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """The result of a coroutine over the blocking transport, which never suspends: one push runs it to its end.

    No event loop, hence no thread: grpc.aio in a second thread's loop would disturb a loop the caller may have.
    """
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: Result = end.value
        return result
    coroutine.close()
    raise AssertionError("a blocking operation suspended")


class _BlockingTransport:
    def __init__(
        self, target: str, credentials: grpc.ChannelCredentials | None, metadata: tuple[tuple[str, str], ...]
    ) -> None:
        if credentials is None:
            self._channel = grpc.insecure_channel(target, CHANNEL_OPTIONS)
        else:
            self._channel = grpc.secure_channel(target, credentials, CHANNEL_OPTIONS)
        self._metadata = metadata
        self._methods = Methods(self._channel)
        self._closed = False

    async def call(self, method: str, request: Message, answer: type[Answer], timeout_s: float | None) -> Answer:
        if self._is_closed():
            raise Cancelled("the client is closed")
        try:
            reply: Answer = self._methods[method](request, timeout=timeout_s, metadata=self._metadata)
        except grpc.RpcError as error:
            call: Any = error  # what a unary call raises is also a grpc.Call
            raise from_status(call.code(), call.details(), call.trailing_metadata() or ()) from None
        except ValueError:
            if self._is_closed():  # by another thread, just now: gRPC says so with a ValueError
                raise Cancelled("the client was closed") from None
            raise
        return reply

    async def connect(self, timeout_s: float) -> bool:
        ready = grpc.channel_ready_future(self._channel)
        try:
            ready.result(timeout=timeout_s)
        except grpc.FutureTimeoutError:
            return False
        finally:
            ready.cancel()
        return True

    async def sleep(self, delay_s: float) -> None:
        sleep(delay_s)  # noqa: ASYNC251 blocking is what this transport is for

    def _is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        self._closed = True
        self._channel.close()
