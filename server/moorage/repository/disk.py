"""The repository as the engine sees it: what is in the folder, told in the domain's terms."""

from pathlib import Path

from moorage.domain.errors import LoadFailed
from moorage.domain.model import ModelSpec
from moorage.repository.errors import RepositoryError
from moorage.repository.scan import scan, scan_model


class DiskRepository:
    """One folder. Its methods block, so they are called in a thread."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def scan(self) -> tuple[tuple[ModelSpec, ...], dict[str, str]]:
        """All models, and the reason of each folder that is none. Raises RepositoryError if there is no folder."""
        listing = scan(self._root)
        return listing.models, dict(listing.broken)

    def scan_model(self, name: str) -> tuple[ModelSpec, ...]:
        """One model's versions. Raises InvalidRequest, ModelNotFound, or LoadFailed with what is wrong in it."""
        try:
            return scan_model(self._root, name)
        except RepositoryError as error:
            raise LoadFailed(name, str(error)) from error
