"""Liveness, readiness, and what server and models say of themselves. All of it is read from the snapshot."""

from moorage.domain.errors import ModelNotFound, ModelNotReady
from moorage.engine.snapshot import ModelSnapshot, ServerSnapshot
from moorage.rpc.configuration import config_of, metadata_of
from moorage.rpc.lookup import find, versions
from moorage.rpc.ports import Backend
from moorage_protocol import inference as pb

SERVER_NAME = "moorage"
EXTENSIONS = (
    "model_repository",
    "schedule_policy",
    "model_configuration",
    "binary_tensor_data",
    "parameters",
    "statistics",
)
"""Triton's names of what works here; perf_analyzer asks for server-side figures only where it finds `statistics`."""


def server_ready(snapshot: ServerSnapshot) -> bool:
    """Whether the server takes requests."""
    return snapshot.ready and not snapshot.draining


class Metadata:
    """The handlers. Each raises MoorageError and never waits."""

    def __init__(self, backend: Backend, server_version: str) -> None:
        self._backend = backend
        self._server_version = server_version

    async def server_live(self, _: pb.ServerLiveRequest) -> pb.ServerLiveResponse:
        """Always true: the process answers."""
        return pb.ServerLiveResponse(live=True)

    async def server_ready(self, _: pb.ServerReadyRequest) -> pb.ServerReadyResponse:
        """False while the server starts and while it drains."""
        return pb.ServerReadyResponse(ready=server_ready(self._backend.snapshot()))

    async def model_ready(self, request: pb.ModelReadyRequest) -> pb.ModelReadyResponse:
        """Whether a request for the model would be accepted; false for a model that does not exist."""
        snapshot = self._backend.snapshot()
        try:
            model = find(snapshot, request.name, request.version)
        except (ModelNotFound, ModelNotReady):
            return pb.ModelReadyResponse(ready=False)
        return pb.ModelReadyResponse(ready=model.ready and not snapshot.draining)

    async def server_metadata(self, _: pb.ServerMetadataRequest) -> pb.ServerMetadataResponse:
        """Name, version, and the extensions that work."""
        return pb.ServerMetadataResponse(name=SERVER_NAME, version=self._server_version, extensions=EXTENSIONS)

    async def model_metadata(self, request: pb.ModelMetadataRequest) -> pb.ModelMetadataResponse:
        """Tensors and versions of a model, loaded or not."""
        snapshot = self._backend.snapshot()
        model = find(snapshot, request.name, request.version)
        return metadata_of(model.spec, (known.key.version for known in versions(snapshot, request.name)))

    async def model_config(self, request: pb.ModelConfigRequest) -> pb.ModelConfigResponse:
        """The configuration of a model, loaded or not."""
        snapshot = self._backend.snapshot()
        model = find(snapshot, request.name, request.version)
        return pb.ModelConfigResponse(config=config_of(model.spec, _device(model, snapshot)))


def _device(model: ModelSnapshot, snapshot: ServerSnapshot) -> str:
    """Where the model is, or would be placed first."""
    if model.device is not None:
        return model.device
    wanted = model.spec.devices
    allowed = (d.name for d in snapshot.devices if "*" in wanted or d.name in wanted)
    return next(allowed, "cpu")
