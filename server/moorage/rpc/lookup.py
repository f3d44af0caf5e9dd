"""Finding models in a snapshot."""

from collections.abc import Iterable

from moorage.domain.errors import ModelNotFound, ModelNotReady
from moorage.engine.snapshot import ModelSnapshot, ServerSnapshot
from moorage.repository.names import check_model_name, parse_version


def current(snapshot: ServerSnapshot) -> tuple[ModelSnapshot, ...]:
    """One entry for each version of each model. Of two generations in the middle of a swap, the one that serves."""
    latest: dict[tuple[str, int], ModelSnapshot] = {}
    for model in snapshot.models:
        asked = (model.key.name, model.key.version)
        known = latest.get(asked)
        if known is None or _precedence(model) > _precedence(known):
            latest[asked] = model
    return tuple(latest.values())


def versions(snapshot: ServerSnapshot, name: str) -> tuple[ModelSnapshot, ...]:
    """All versions of one model, ascending."""
    return tuple(sorted((m for m in current(snapshot) if m.key.name == name), key=lambda m: m.key.version))


def find(snapshot: ServerSnapshot, name: str, version: str) -> ModelSnapshot:
    """The model that a client names; where it names no version, the latest that serves, else the latest.

    Raises InvalidRequest (no such name is possible), ModelNotFound, and ModelNotReady for a broken folder.
    """
    number = parse_version(version)
    candidates = versions(snapshot, check_model_name(name))
    if number is not None:
        candidates = tuple(model for model in candidates if model.key.version == number)
    if candidates:
        return max(candidates, key=_precedence_of_version)
    for broken in snapshot.broken:
        if broken.name == name and number is None:
            raise ModelNotReady(name, broken.reason, retry_after_s=None)
    raise ModelNotFound(name, version)


def matching(snapshot: ServerSnapshot, name: str, version: str) -> Iterable[ModelSnapshot]:
    """All models where the name is empty, all versions where the version is. Raises as `find` does."""
    if not name:
        return current(snapshot)
    if not version:
        find(snapshot, name, version)
        return versions(snapshot, name)
    return (find(snapshot, name, version),)


def _precedence(model: ModelSnapshot) -> tuple[bool, int]:
    return model.ready, model.key.generation


def _precedence_of_version(model: ModelSnapshot) -> tuple[bool, int]:
    return model.ready, model.key.version
