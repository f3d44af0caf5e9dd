"""What the engine needs of the rooms beside it."""

from typing import Protocol

from moorage.domain.model import ModelKey, ModelSpec
from moorage.scheduling.actions import Run


class Workers(Protocol):
    """Starts things and returns; what comes of them is posted to the engine as events."""

    def start(self, name: str, device: str) -> None: ...

    def stop(self, name: str) -> None: ...

    def kill(self, name: str, reason: str) -> None: ...

    def load(self, name: str, key: ModelKey, spec: ModelSpec) -> None: ...

    def unload(self, name: str, key: ModelKey) -> None: ...

    def offload(self, name: str, key: ModelKey) -> None: ...

    def restore(self, name: str, key: ModelKey) -> None: ...

    def suspend(self, name: str, key: ModelKey, request_ids: tuple[int, ...]) -> None: ...

    def drop(self, name: str, key: ModelKey, request_ids: tuple[int, ...]) -> None: ...

    def execute(self, run: Run) -> None: ...

    def trim(self, run: Run) -> None:
        """The outputs of a run have been read."""
        ...


class Repository(Protocol):
    """What is on disk. Both block, so they are called in a thread."""

    def scan(self) -> tuple[tuple[ModelSpec, ...], dict[str, str]]:
        """All models, and the reason of each folder that is none."""
        ...

    def scan_model(self, name: str) -> tuple[ModelSpec, ...]:
        """One model's versions. Raises ModelNotFound, or LoadFailed with what is wrong in its folder."""
        ...
