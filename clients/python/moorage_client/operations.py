"""The protocol's operations over any transport. Written once, as coroutines: both clients run these."""

import time
from collections.abc import Mapping, Sequence

from moorage_client import messages
from moorage_client.admin import AdminOperations
from moorage_client.batch_operations import BatchOperations
from moorage_client.errors import DeadlineExceeded, InvalidResponse, Unavailable
from moorage_client.messages import InferenceOptions, ModelInfo, ModelMetadata, ParameterValue, ServerMetadata
from moorage_client.tensors import Array, Tensor
from moorage_protocol import inference as pb

_FIRST_POLL_S = 0.02
_LONGEST_POLL_S = 0.5


class Operations(AdminOperations, BatchOperations):
    """What a client can ask of a server.

    Every method raises MoorageClientError (see moorage_client.errors for the kinds). Calls that failed because the
    server was out of reach, or overloaded with a time to come back, are tried again within their timeout.
    Cancellation of any of them ends the call, on the server too.
    """

    async def is_live(self) -> bool:
        """Whether the server runs. Raises Unavailable where it can't be reached."""
        return (await self._query("ServerLive", pb.ServerLiveRequest(), pb.ServerLiveResponse)).live

    async def is_ready(self) -> bool:
        """Whether the server takes work. Raises Unavailable where it can't be reached."""
        return (await self._query("ServerReady", pb.ServerReadyRequest(), pb.ServerReadyResponse)).ready

    async def is_model_ready(self, model: str, version: str = "") -> bool:
        """Whether a request for the model would be accepted now; false for an unknown model."""
        request = pb.ModelReadyRequest(name=model, version=version)
        return (await self._query("ModelReady", request, pb.ModelReadyResponse)).ready

    async def server_metadata(self) -> ServerMetadata:
        """Name, version and extensions of the server."""
        response = await self._query("ServerMetadata", pb.ServerMetadataRequest(), pb.ServerMetadataResponse)
        return messages.server_metadata(response)

    async def metadata(self, model: str, version: str = "") -> ModelMetadata:
        """Inputs and outputs of a model. Raises ModelNotFound."""
        request = pb.ModelMetadataRequest(name=model, version=version)
        return messages.model_metadata(await self._query("ModelMetadata", request, pb.ModelMetadataResponse))

    async def config(self, model: str, version: str = "") -> pb.ModelConfig:
        """The model's configuration, as the protocol's own message. Raises ModelNotFound."""
        request = pb.ModelConfigRequest(name=model, version=version)
        return (await self._query("ModelConfig", request, pb.ModelConfigResponse)).config

    async def models(self) -> tuple[ModelInfo, ...]:
        """Every version of every model in the repository, and what memory it holds."""
        index = await self._query("RepositoryIndex", pb.RepositoryIndexRequest(), pb.RepositoryIndexResponse)
        return messages.model_infos(index, await self.statistics())

    async def statistics(self, model: str = "", version: str = "") -> tuple[pb.ModelStatistics, ...]:
        """Counts and durations of a model, or of all; as the protocol's own messages. Raises ModelNotFound."""
        request = pb.ModelStatisticsRequest(name=model, version=version)
        response = await self._query("ModelStatistics", request, pb.ModelStatisticsResponse)
        return tuple(response.model_stats)

    async def load(self, model: str, *, timeout_s: float | None = None) -> None:
        """Load a model, or load it again; returns when it is ready. Raises ModelNotFound, FailedPrecondition."""
        request = pb.RepositoryModelLoadRequest(model_name=model)
        await self._call("RepositoryModelLoad", request, pb.RepositoryModelLoadResponse, timeout_s)

    async def unload(self, model: str, *, timeout_s: float | None = None) -> None:
        """Unload a model, after the work it has accepted. Raises ModelNotFound."""
        request = pb.RepositoryModelUnloadRequest(model_name=model)
        await self._call("RepositoryModelUnload", request, pb.RepositoryModelUnloadResponse, timeout_s)

    async def infer(  # noqa: PLR0913 the protocol's options, each with a default
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
        """Run the model; all its outputs by name, or those named in `outputs`.

        An input's datatype is that of its array: a model that takes FP32 wants np.float32 (a list of floats is FP64).
        Numeric outputs are read-only views; copy one to write to it.
        priority: 1 is the highest, 0 the model's default. Sent to the server; one without priorities ignores it.
        timeout_s: covers all tries; without it the model's own default timeout rules.
        Raises InvalidRequest, ModelNotFound, Unavailable, Overloaded, DeadlineExceeded, ServerFailure, InvalidResponse.
        """
        options = InferenceOptions(outputs, version, parameters, priority, request_id)
        request = messages.infer_request(model, inputs, options)
        response = await self._call("ModelInfer", request, pb.ModelInferResponse, timeout_s)
        if request_id and response.id != request_id:
            raise InvalidResponse(f"the answer is for request '{response.id}', asked was '{request_id}'")
        return messages.infer_outputs(response, outputs)

    async def wait_until_ready(self, timeout_s: float, models: Sequence[str] = ()) -> None:
        """Wait for the server to be reachable and ready, and for these models to be.

        Raises DeadlineExceeded, saying what was still missing.
        """
        deadline_s = time.monotonic() + timeout_s
        if not await self._transport.connect(timeout_s):
            raise DeadlineExceeded(f"no connection within {timeout_s:g} s")
        poll_s = _FIRST_POLL_S
        known = "no answer"
        while missing := await self._missing(models, deadline_s - time.monotonic(), known):
            known = missing
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                raise DeadlineExceeded(f"{known} after {timeout_s:g} s")
            await self._transport.sleep(min(poll_s, left_s))
            poll_s = min(poll_s * 2, _LONGEST_POLL_S)

    async def _missing(self, models: Sequence[str], left_s: float, known: str) -> str:
        """What is not ready yet; empty if all is. `known`: what the last look found, said again if time runs out."""
        timeout_s = max(left_s, 0.001)
        try:
            server = pb.ServerReadyRequest()
            if not (await self._transport.call("ServerReady", server, pb.ServerReadyResponse, timeout_s)).ready:
                return "the server is not ready"
            for name in models:
                model = pb.ModelReadyRequest(name=name)
                if not (await self._transport.call("ModelReady", model, pb.ModelReadyResponse, timeout_s)).ready:
                    return f"model '{name}' is not ready"
        except Unavailable as error:
            return error.message
        except DeadlineExceeded:
            return known
        return ""
