"""Models: what is declared of them, and the states they pass through."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import PurePath
from typing import Any, NamedTuple

from moorage.domain.tensor import TensorSpec


class ModelKey(NamedTuple):
    """One loaded thing. The generation tells a reloaded version from the one it replaces."""

    name: str
    version: int
    generation: int = 0

    def __str__(self) -> str:
        return f"{self.name}/{self.version}" + (f"+{self.generation}" if self.generation else "")


class Loading(StrEnum):
    """When a model is loaded."""

    EAGER = "eager"
    ON_DEMAND = "on_demand"
    EXPLICIT = "explicit"


class Isolation(StrEnum):
    """Whose process a model runs in: the device's, or its own."""

    SHARED = "shared"
    DEDICATED = "dedicated"


@dataclass(frozen=True, slots=True)
class MemoryPolicy:
    """Declared bytes. weights_bytes is None where they are to be measured."""

    weights_bytes: int | None = None
    workspace_fixed_bytes: int = 0
    workspace_per_row_bytes: int = 0

    def workspace_bytes(self, rows: int) -> int:
        """Bytes of one run of that many rows, besides the weights."""
        return self.workspace_fixed_bytes + rows * self.workspace_per_row_bytes


@dataclass(frozen=True, slots=True)
class QueuePolicy:
    """Bounds of what may wait for a model."""

    max_rows: int = 256
    max_bytes: int = 64 * 1024 * 1024
    default_timeout_s: float = 30.0


@dataclass(frozen=True, slots=True)
class SimulatedCosts:
    """The table of a simulated model: seconds to load, and to run a batch."""

    load_s: float = 0.0
    run_s: float = 0.0
    run_s_per_row: float = 0.0


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """All that is declared of one version of a model.

    max_batch_size: rows in one run; 0 where the model has no batch axis.
    path: the version's folder; only workers open it.
    fingerprint: changes when the files or the manifest change.
    weights_hint_bytes: size of the weight files on disk; 0 where there are none.
    versions: which of the model's versions are offered: "latest", "all", or their numbers.
    """

    name: str
    version: int
    runtime: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    path: PurePath
    max_batch_size: int = 0
    loading: Loading = Loading.EAGER
    load_timeout_s: float = 300.0
    isolation: Isolation = Isolation.SHARED
    devices: tuple[str, ...] = ("*",)
    memory: MemoryPolicy = MemoryPolicy()
    queue: QueuePolicy = QueuePolicy()
    simulated: SimulatedCosts = SimulatedCosts()
    parameters: Mapping[str, Any] = field(default_factory=dict)
    fingerprint: str = ""
    weights_hint_bytes: int = 0
    versions: str | tuple[int, ...] = "latest"


class ModelState(StrEnum):
    """Where the weights of one ModelKey are."""

    UNLOADED = "unloaded"
    LOADING = "loading"
    RESIDENT = "resident"
    UNLOADING = "unloading"
    FAILED = "failed"


TRANSITIONS: Mapping[ModelState, frozenset[ModelState]] = {
    ModelState.UNLOADED: frozenset({ModelState.LOADING}),
    # Back to unloaded: cancelled before it began, or refused for want of memory.
    # Loading again: its worker died before it was done.
    ModelState.LOADING: frozenset(
        {ModelState.LOADING, ModelState.RESIDENT, ModelState.FAILED, ModelState.UNLOADED, ModelState.UNLOADING}
    ),
    # Back to loading: the worker died, and the model comes back by itself; unless it was closing.
    ModelState.RESIDENT: frozenset({ModelState.UNLOADING, ModelState.LOADING, ModelState.UNLOADED}),
    # Failed: it turned out too large once it was there.
    ModelState.UNLOADING: frozenset({ModelState.UNLOADED, ModelState.FAILED}),
    ModelState.FAILED: frozenset({ModelState.LOADING}),
}
