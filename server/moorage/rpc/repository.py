"""RepositoryIndex, RepositoryModelLoad and RepositoryModelUnload."""

from moorage.domain.errors import InvalidRequest, NotSupported
from moorage.domain.model import ModelState
from moorage.engine.snapshot import BrokenModel, ModelSnapshot
from moorage.repository.names import check_model_name
from moorage.rpc.lookup import current
from moorage.rpc.ports import Backend
from moorage.rpc.wording import quote
from moorage_protocol import inference as pb

_Entry = pb.RepositoryIndexResponse.ModelIndex
_UNIT = 1024


class Repository:
    """The handlers."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def index(self, request: pb.RepositoryIndexRequest) -> pb.RepositoryIndexResponse:
        """All models, the broken ones too; or only those that take requests. Raises NotSupported."""
        _refuse_other_repositories(request.repository_name)
        snapshot = self._backend.snapshot()
        entries = [_entry(model) for model in current(snapshot) if model.ready or not request.ready]
        if not request.ready:
            entries += [_broken_entry(broken) for broken in snapshot.broken]
            entries.sort(key=lambda entry: entry.name)
        return pb.RepositoryIndexResponse(models=entries)

    async def load(self, request: pb.RepositoryModelLoadRequest) -> pb.RepositoryModelLoadResponse:
        """Load a model, or load it again, and answer when that is done. Raises MoorageError.

        Cancellation: the caller stops waiting; what the engine has begun is its own affair.
        """
        name = _model_name(request)
        for key in request.parameters:
            raise InvalidRequest(
                f"parameter {quote(key)}",
                expected="a model as it is in the repository: configurations and files are not taken from clients",
                got=f"a parameter of {len(request.parameters)}",
            )
        await self._backend.load(name)
        return pb.RepositoryModelLoadResponse(model_name=name, isLoaded=True)

    async def unload(self, request: pb.RepositoryModelUnloadRequest) -> pb.RepositoryModelUnloadResponse:
        """Unload a model, and answer when its memory is released. Raises MoorageError. Cancellation: as `load`."""
        name = _model_name(request)
        for key in request.parameters:
            if key != "unload_dependents":  # no model here depends on another
                raise InvalidRequest(f"parameter {quote(key)}", expected="unload_dependents or none", got="another")
        await self._backend.unload(name)
        return pb.RepositoryModelUnloadResponse(model_name=name, isUnloaded=True)


def _model_name(request: pb.RepositoryModelLoadRequest | pb.RepositoryModelUnloadRequest) -> str:
    """Triton's clients name the model in field 2; KServe's in field 1, which is Triton's repository name."""
    if request.model_name:
        _refuse_other_repositories(request.repository_name)
    return check_model_name(request.model_name or request.repository_name)


def _refuse_other_repositories(name: str) -> None:
    if name:
        raise NotSupported(f"repository_name: this server has one repository without a name, not {quote(name)}")


def _entry(model: ModelSnapshot) -> _Entry:
    return _Entry(
        name=model.key.name, version=str(model.key.version), state=_state_text(model), reason=_reason_text(model)
    )


def _broken_entry(broken: BrokenModel) -> _Entry:
    return _Entry(name=broken.name, state="UNAVAILABLE", reason=broken.reason)


def _state_text(model: ModelSnapshot) -> str:
    """A cold model that can be loaded is ready; where it is stands in the reason."""
    if model.ready:
        return "READY"
    moving = {ModelState.LOADING: "LOADING", ModelState.UNLOADING: "UNLOADING"}
    return moving.get(model.state, "UNAVAILABLE")


def _reason_text(model: ModelSnapshot) -> str:
    """Where the model is and what it holds; why, where that says more; and what waits."""
    told = [_residency_text(model), "" if model.reason == model.state.value else model.reason]
    if model.waiting_rows:
        told.append(f"{model.waiting_rows} rows waiting")
    return "; ".join(text for text in told if text)


def _residency_text(model: ModelSnapshot) -> str:
    """The state, unless the reason is a sentence that begins with it; the device; the bytes held there."""
    where = [] if model.reason.startswith(f"{model.state.value} ") else [model.state.value]
    where += [f"on {model.device}"] if model.device else []
    held = [f"{_bytes_text(count)} {kind}" for kind, count in sorted(model.leased_bytes.items(), reverse=True) if count]
    return ", ".join([" ".join(where), *held]).removeprefix(", ")


def _bytes_text(count: int) -> str:
    size = float(count)
    for unit in ("B", "KiB", "MiB"):
        if round(size) < _UNIT:  # so that it never reads 1024
            return _short(size, unit)
        size /= _UNIT
    return _short(size, "GiB")


def _short(size: float, unit: str) -> str:
    """Whole where that is exact, or near enough."""
    return f"{size:.0f} {unit}" if size >= 100 or size == int(size) else f"{size:.1f} {unit}"
