"""What server and worker say to each other: msgspec structs, as msgpack, each in a frame.

Nothing on these sockets is ever code: a worker decodes into these types or gives up.
"""

from typing import Any

import msgspec

from moorage.domain.model import ModelKey, WarmupRun
from moorage.domain.request import RehearsedRun
from moorage.domain.tensor import Element


class Spec(msgspec.Struct, frozen=True, array_like=True):
    """One declared input or output."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    optional: bool
    ragged: bool = False
    padding: Element | None = None


class Blueprint(msgspec.Struct, frozen=True, array_like=True):
    """What a worker needs to build a model.

    measures_all: the memory of every run, whatever that costs. instances: lanes, each of which has runs of its own.
    urgent: on a CUDA device its runs go before those of models that are not. decoupled: see ModelSpec.
    """

    runtime: str
    path: str
    inputs: tuple[Spec, ...]
    outputs: tuple[Spec, ...]
    max_batch_size: int
    parameters: dict[str, Any]
    load_s: float
    run_s: float
    run_s_per_row: float
    declared_weights_bytes: int
    restore_s: float = 0.0
    steps: int = 1
    state_bytes: int = 0
    warmup: tuple[WarmupRun, ...] = ()
    measures_all: bool = False
    instances: int = 1
    urgent: bool = False
    decoupled: bool = False


class LoadModel(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Build a model. Its lanes' sockets and memory come over `handles`, in the order of these messages."""

    key: ModelKey
    blueprint: Blueprint


class UnloadModel(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Drop a model and give its memory back."""

    key: ModelKey


class OffloadModel(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Move a model's weights to the host. None of its runs is under way."""

    key: ModelKey


class RestoreModel(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Bring a model's weights back."""

    key: ModelKey


class SetCap(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The most that all models of this worker together may take of a CUDA device. Without effect on a CPU.

    number: counted from 1; a run says which of them it counts on. keeps_cached, keeps_pinned: whether this process may
    keep for itself what is free again of the device, and of pinned host memory: nobody else may be given it.
    """

    device_bytes: int
    number: int = 0
    keeps_cached: bool = True
    keeps_pinned: bool = True


class GiveBack(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Give the device back what is cached and not in use."""


class Stop(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Drop everything and exit."""


class Hello(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The worker is there."""

    pid: int


class Loaded(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A model is ready for its first run. weights_bytes: measured. warmup_s: of load_s, what its warm-up took.

    rehearsed: the warm-up's runs of which something was measured.
    """

    key: ModelKey
    weights_bytes: int
    load_s: float
    stepped: bool
    can_offload: bool
    warmup_s: float = 0.0
    rehearsed: tuple[RehearsedRun, ...] = ()


class LoadRefused(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A model could not be built. reason: one line for the caller; detail: a traceback for the log."""

    key: ModelKey
    reason: str
    detail: str


class Unloaded(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A model was dropped. retained_bytes: of the device, what something still holds of it."""

    key: ModelKey
    retained_bytes: int


class Offloaded(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A model's weights are on the host, where they take host_bytes. retained_bytes: what stayed on the device."""

    key: ModelKey
    host_bytes: int
    retained_bytes: int
    offload_s: float


class OffloadRefused(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A model's weights could not be moved, and are where they were. detail: a traceback for the log."""

    key: ModelKey
    detail: str


class Restored(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A model's weights are back."""

    key: ModelKey
    restore_s: float


class RestoreRefused(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A model's weights could not be brought back: it can only be unloaded. reason, detail: as in LoadRefused."""

    key: ModelKey
    reason: str
    detail: str


class GaveBack(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """What the device got back."""

    freed_bytes: int


ToWorker = LoadModel | UnloadModel | OffloadModel | RestoreModel | SetCap | GiveBack | Stop
FromWorker = Hello | Loaded | LoadRefused | Unloaded | Offloaded | OffloadRefused | Restored | RestoreRefused | GaveBack
