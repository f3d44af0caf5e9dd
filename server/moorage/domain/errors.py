"""Every way a request or a command can fail. The edge maps each class to one status, in one place.

An error carries its figures as attributes, so that the edge can put them into machine-readable details.
Messages are meant for the caller: they hold no paths and no traceback.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Held:
    """Who has how many bytes, for what: "context", "weights", "workspace", "state" or "held"."""

    owner: str
    kind: str
    size_bytes: int


class MoorageError(Exception):
    """Base of all failures that a caller may see."""

    retry_after_s: float | None = None
    """Seconds after which trying again may succeed; None where trying again is pointless."""

    @property
    def message(self) -> str:
        return str(self)


class InvalidRequest(MoorageError):
    """A field of the request is wrong; says which, what was expected and what came."""

    def __init__(self, field: str, *, expected: str, got: str) -> None:
        super().__init__(f"{field}: expected {expected}, got {got}")
        self.field = field
        self.expected = expected
        self.got = got


class NotSupported(MoorageError):
    """The request is well formed, but this server does not do it."""


class ModelNotFound(MoorageError):
    """No model, or no version of it, of that name in the repository."""

    def __init__(self, name: str, version: str = "") -> None:
        which = f"'{name}' version {version}" if version else f"'{name}'"
        super().__init__(f"Request for unknown model: {which} is not found")
        self.name = name
        self.version = version


class ModelNotReady(MoorageError):
    """The model exists but can't serve now: loading, unloaded or failed."""

    def __init__(self, name: str, reason: str, *, retry_after_s: float | None = 1.0) -> None:
        super().__init__(f"model '{name}' is not ready: {reason}")
        self.name = name
        self.reason = reason
        self.retry_after_s = retry_after_s


class LoadFailed(MoorageError):
    """The model could not be loaded: its files or its code are at fault."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"failed to load model '{name}': {reason}")
        self.name = name
        self.reason = reason


class WorkerLost(MoorageError):
    """The process that computed this request died, and it was not retried again."""

    def __init__(self, reason: str, *, retry_after_s: float = 1.0) -> None:
        super().__init__(f"the worker process was lost: {reason}")
        self.reason = reason
        self.retry_after_s = retry_after_s


class ServerDraining(MoorageError):
    """The server is shutting down and takes no new work."""

    retry_after_s = 1.0

    def __init__(self) -> None:
        super().__init__("the server is shutting down and has stopped accepting new requests")


class QueueFull(MoorageError):
    """The model's queue is at its bound, or, where `model` is empty, all queues of the server together are."""

    def __init__(self, model: str, *, unit: str, waiting: int, asked: int, limit: int, retry_after_s: float) -> None:
        whose = f"queue of model '{model}' is" if model else "the server's queues together are"
        super().__init__(f"{whose} full: {waiting} {unit} waiting, {asked} more asked, limit {limit}")
        self.model = model
        self.unit = unit
        self.waiting = waiting
        self.asked = asked
        self.limit = limit
        self.retry_after_s = retry_after_s


class RateLimited(MoorageError):
    """The model may not be asked for more in so short a time."""

    def __init__(self, model: str, *, unit: str, limit_per_s: float, retry_after_s: float) -> None:
        super().__init__(f"model '{model}' may be asked for {limit_per_s:g} {unit} per second, and was asked for more")
        self.model = model
        self.unit = unit
        self.limit_per_s = limit_per_s
        self.retry_after_s = retry_after_s


class MemoryExhausted(MoorageError):
    """It would fit the device, but not beside what stays there.

    free_bytes: what is free, or would be made free for it. holders: of what stays, the largest first; not all.
    """

    retry_after_s = 1.0

    def __init__(
        self, what: str, *, device: str, needed_bytes: int, free_bytes: int, holders: tuple[Held, ...] = ()
    ) -> None:
        super().__init__(f"{what} needs {needed_bytes} bytes on {device}, and {free_bytes} can be had")
        self.device = device
        self.needed_bytes = needed_bytes
        self.free_bytes = free_bytes
        self.holders = holders


class OutOfMemory(MemoryExhausted):
    """A run found no memory though the ledger had it.

    tried: the devices where, in their order; empty where that is not told yet. then: what else came of it there.
    """

    def __init__(self, what: str, tried: tuple[str, ...] = (), then: str = "", holders: tuple[Held, ...] = ()) -> None:
        device = tried[-1] if tried else "its device"
        super().__init__(what, device=device, needed_bytes=0, free_bytes=0, holders=holders)
        self.tried = ", ".join(tried)
        self.args = (f"{what} found no memory on {' nor on '.join(tried) or 'its device'}{then and f'; {then}'}",)


class ModelTooLarge(MoorageError):
    """It can never fit the device, even with nothing else on it."""

    def __init__(self, what: str, *, device: str, needed_bytes: int, capacity_bytes: int) -> None:
        super().__init__(f"{what} needs {needed_bytes} bytes, but {device} has a capacity of {capacity_bytes} bytes")
        self.device = device
        self.needed_bytes = needed_bytes
        self.capacity_bytes = capacity_bytes


class DeadlineExceeded(MoorageError):
    """The request's deadline passed before it was answered."""

    def __init__(self, waited_s: float, state: str) -> None:
        super().__init__(f"deadline exceeded after {waited_s:.3f} s, {state}")
        self.waited_s = waited_s
        self.state = state


@dataclass(frozen=True, slots=True)
class TimeNeeded:
    """What is left to be done for a request is expected to take: the runs before its own, bringing the model into
    memory, its own run, and its answer on the way."""

    wait_s: float
    load_s: float
    run_s: float
    answer_s: float

    @property
    def all_s(self) -> float:
        return self.wait_s + self.load_s + self.run_s + self.answer_s


class DeadlineUnmeetable(DeadlineExceeded):
    """The request's deadline is still ahead, and nearer than what is left to be done for it takes.

    left_s: until the deadline.
    """

    def __init__(self, waited_s: float, left_s: float, needed: TimeNeeded) -> None:
        super().__init__(waited_s, "cannot be met")
        self.left_s = left_s
        self.wait_s, self.load_s, self.run_s, self.answer_s = (
            needed.wait_s,
            needed.load_s,
            needed.run_s,
            needed.answer_s,
        )
        self.args = (
            f"deadline cannot be met: {left_s:.3f} s are left, and it would take {needed.wait_s:.3f} s to wait, "
            f"{needed.load_s:.3f} s to load, {needed.run_s:.3f} s to run and {needed.answer_s:.3f} s to answer",
        )


class Preempted(MoorageError):
    """Work of higher priority took this request's memory, and its deadline came before it could go on."""

    def __init__(self, waited_s: float, times: int, *, retry_after_s: float = 1.0) -> None:
        super().__init__(
            f"preempted {times} times by work of higher priority; its deadline came after {waited_s:.3f} s"
        )
        self.waited_s = waited_s
        self.times = times
        self.retry_after_s = retry_after_s


class InferenceFailed(MoorageError):
    """The model raised, or returned what it did not declare. The detail is in the log, under the id."""

    def __init__(self, model: str, error_id: str, detail: str = "") -> None:
        super().__init__(f"inference failed in model '{model}', error id {error_id}")
        self.model = model
        self.error_id = error_id
        self.detail = detail


class DeviceLost(InferenceFailed):
    """The device failed under the run, and can't be used any more by the process that computed it."""


class InputRefused(MoorageError):
    """The model finds the data of this request wrong. reason: in its author's words, meant for callers."""

    def __init__(self, model: str, reason: str) -> None:
        super().__init__(f"model '{model}' refuses the input: {reason}")
        self.model = model
        self.reason = reason


class ContractBroken(InferenceFailed):
    """The model returned other outputs than it declared, or for another number of rows than it was given; or, for the
    pieces of one request, outputs that can't be put together."""

    def __init__(self, model: str, error_id: str, reason: str) -> None:
        super().__init__(model, error_id)
        self.reason = reason
        self.args = (f"{self}: {reason}",)
