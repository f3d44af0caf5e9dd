"""What server and worker say on a model's lane: runs and steps, and what came of them. Structs as in `messages`."""

import msgspec

from moorage.domain.tensor import Element


class TensorReference(msgspec.Struct, frozen=True, array_like=True):
    """A tensor in the lane's memory, or the tensors of several requests, each behind the one before.

    shape: of what the model gets; -1 stands for what may differ among the tensors of a ragged input.
    parts: the shapes of the requests' own, where the input is ragged, or is yet to be filled up with `padding`.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]
    offset: int
    size_bytes: int
    parts: tuple[tuple[int, ...], ...] = ()
    padding: Element | None = None


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
    """A run is done; its outputs stay where they are until the next Execute on this lane.

    peak_bytes: of the device, the most that it took beside the weights; reserved_bytes: what the allocator took for
    that. None where it was not measured.
    """

    run_id: int
    outputs: tuple[OutputReference, ...]
    input_ns: int
    infer_ns: int
    output_ns: int
    peak_bytes: int | None = None
    reserved_bytes: int | None = None


class Failure(msgspec.Struct, frozen=True, array_like=True):
    """What a model raised. detail: the traceback, for the log.

    out_of_memory tells want of memory from a fault of the model. lane_bytes: what outputs would take of the lane that
    do not fit there: then it was not the device's memory. invalid_input: what the model finds wrong with the data, in
    its own words. broken_contract: how what it returned differs from what it declared, in ours. Empty otherwise, both.
    device_lost: the process can't use its device any more, and ends once this is told.
    """

    detail: str
    out_of_memory: bool = False
    lane_bytes: int = 0
    invalid_input: str = ""
    broken_contract: str = ""
    device_lost: bool = False


class ExecuteFailed(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A run or step failed and the worker is well."""

    run_id: int
    failure: Failure


class SteppedMember(msgspec.Struct, frozen=True, array_like=True):
    """What a step did for one request. failure: of what failed for this request alone.

    A request that is done or has failed leaves no state behind.
    """

    request_id: int
    done: bool
    state_bytes: int
    outputs: tuple[OutputReference, ...] = ()
    failure: Failure | None = None


class Stepped(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A step is done; its outputs stay where they are until the next ExecuteStep on this lane.

    One that failed as a whole is ExecuteFailed, and leaves no state of any of its members behind.
    peak_bytes, reserved_bytes: as in Executed, beside the states as they were.
    """

    run_id: int
    results: tuple[SteppedMember, ...]
    input_ns: int
    infer_ns: int
    output_ns: int
    peak_bytes: int | None = None
    reserved_bytes: int | None = None


class Suspended(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """States are on the host."""

    request_ids: tuple[int, ...]


class Dropped(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """There are no states of these requests any more."""

    request_ids: tuple[int, ...]


ToLane = Execute | ExecuteStep | SuspendStates | DropStates
FromLane = Executed | ExecuteFailed | Stepped | Suspended | Dropped
