"""What server and worker say to each other: msgspec structs, as msgpack, each in a frame.

Nothing on these sockets is ever code: a worker decodes into these types or gives up.
"""

from typing import Any

import msgspec

from moorage.domain.model import ModelKey, WarmupRun


class Spec(msgspec.Struct, frozen=True, array_like=True):
    """One declared input or output."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    optional: bool


class Blueprint(msgspec.Struct, frozen=True, array_like=True):
    """What a worker needs to build a model."""

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


class LoadModel(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Build a model. The lane's socket and memory come over `handles`, in the order of these messages."""

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
    """A model is ready for its first run. weights_bytes: measured. warmup_s: of load_s, what its warm-up took."""

    key: ModelKey
    weights_bytes: int
    load_s: float
    stepped: bool
    can_offload: bool
    warmup_s: float = 0.0


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


class TensorReference(msgspec.Struct, frozen=True, array_like=True):
    """A tensor in the lane's memory."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    offset: int
    size_bytes: int


class Member(msgspec.Struct, frozen=True, array_like=True):
    """One caller's part of a run."""

    id: str
    rows: int
    parameters: dict[str, bool | int | float | str]


class Execute(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Compute one run. free_offset: where the lane's memory is free for outputs. after_cap: not before that SetCap."""

    run_id: int
    rows: int
    inputs: tuple[TensorReference, ...]
    members: tuple[Member, ...]
    free_offset: int
    after_cap: int = 0


class StartingMember(msgspec.Struct, frozen=True, array_like=True):
    """A request that a stepped model is to begin. Its inputs are its own, not laid out with those of others."""

    request_id: int
    id: str
    rows: int
    parameters: dict[str, bool | int | float | str]
    inputs: tuple[TensorReference, ...]


class ExecuteStep(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Compute one step. stepping: all members in order, those that start or resume among them. after_cap: as above."""

    run_id: int
    starting: tuple[StartingMember, ...]
    resuming: tuple[int, ...]
    stepping: tuple[int, ...]
    free_offset: int
    after_cap: int = 0


class SuspendStates(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Move the states of requests to the host. What can't be moved is dropped."""

    request_ids: tuple[int, ...]


class DropStates(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Forget the states of requests, where there are any."""

    request_ids: tuple[int, ...]


class OutputReference(msgspec.Struct, frozen=True, array_like=True):
    """An output of a run. splits: where each member's bytes end, from offset."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    offset: int
    size_bytes: int
    splits: tuple[int, ...]


class Executed(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A run is done; its outputs stay where they are until the next Execute on this lane."""

    run_id: int
    outputs: tuple[OutputReference, ...]
    input_ns: int
    infer_ns: int
    output_ns: int


class ExecuteFailed(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A run or step failed and the worker is well. out_of_memory tells want of memory from a fault of the model.

    broken_contract: how what the model returned differs from what it declared, in our own words; empty otherwise.
    """

    run_id: int
    out_of_memory: bool
    detail: str
    broken_contract: str = ""


class SteppedMember(msgspec.Struct, frozen=True, array_like=True):
    """What a step did for one request. failure: a traceback for the log, of what failed for this request alone.

    A request that is done or has failed leaves no state behind.
    """

    request_id: int
    done: bool
    state_bytes: int
    outputs: tuple[OutputReference, ...] = ()
    failure: str | None = None
    out_of_memory: bool = False


class Stepped(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A step is done; its outputs stay where they are until the next ExecuteStep on this lane.

    One that failed as a whole is ExecuteFailed, and leaves no state of any of its members behind.
    """

    run_id: int
    results: tuple[SteppedMember, ...]
    input_ns: int
    infer_ns: int
    output_ns: int


class Suspended(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """States are on the host."""

    request_ids: tuple[int, ...]


class Dropped(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """There are no states of these requests any more."""

    request_ids: tuple[int, ...]


ToWorker = LoadModel | UnloadModel | OffloadModel | RestoreModel | SetCap | GiveBack | Stop
FromWorker = Hello | Loaded | LoadRefused | Unloaded | Offloaded | OffloadRefused | Restored | RestoreRefused | GaveBack
ToLane = Execute | ExecuteStep | SuspendStates | DropStates
FromLane = Executed | ExecuteFailed | Stepped | Suspended | Dropped
