"""Which models there are by name and version, and which ModelKey serves each."""

from dataclasses import dataclass

from moorage.domain.errors import ModelNotFound, ModelNotReady
from moorage.domain.model import ModelKey, ModelSpec


@dataclass(frozen=True, slots=True)
class Serving:
    """What a version of a model is served by."""

    key: ModelKey
    spec: ModelSpec


class Catalog:
    """Names to models. `broken` holds the folders that are no usable model, by name, with the reason."""

    def __init__(self) -> None:
        self.broken: dict[str, str] = {}
        self._versions: dict[str, dict[int, Serving]] = {}
        self._generations: dict[tuple[str, int], int] = {}

    def all(self) -> list[Serving]:
        """Everything, by name and then version."""
        return [serving for _, versions in sorted(self._versions.items()) for _, serving in sorted(versions.items())]

    def versions_of(self, name: str) -> list[Serving]:
        return [serving for _, serving in sorted(self._versions.get(name, {}).items())]

    def get(self, name: str, version: int) -> Serving | None:
        return self._versions.get(name, {}).get(version)

    def new_key(self, spec: ModelSpec) -> ModelKey:
        """A key that was never used before."""
        generation = self._generations.get((spec.name, spec.version), -1) + 1
        self._generations[spec.name, spec.version] = generation
        return ModelKey(spec.name, spec.version, generation)

    def put(self, serving: Serving) -> None:
        """Serve a version by this from now on."""
        self._versions.setdefault(serving.key.name, {})[serving.key.version] = serving
        self.broken.pop(serving.key.name, None)

    def remove(self, serving: Serving) -> None:
        """Stop offering a version."""
        versions = self._versions.get(serving.key.name, {})
        if versions.get(serving.key.version) is serving:
            del versions[serving.key.version]
            if not versions:
                del self._versions[serving.key.name]

    def resolve(self, name: str, version: str) -> Serving:
        """The version asked for, or the latest where none was.

        Raises ModelNotFound, or ModelNotReady for a folder that is no usable model.
        """
        versions = self._versions.get(name)
        if versions is None:
            if name in self.broken:
                raise ModelNotReady(name, self.broken[name], retry_after_s=None)
            raise ModelNotFound(name, version)
        found = versions.get(int(version)) if version else versions[max(versions)]
        if found is None:
            raise ModelNotFound(name, version)
        return found
