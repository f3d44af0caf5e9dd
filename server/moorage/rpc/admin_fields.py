"""What an administrator's request says, checked. Every complaint is an InvalidRequest that names the field."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from moorage.domain.errors import InvalidRequest
from moorage.domain.model import SharePolicy
from moorage.repository.quantities import MAX_BYTES
from moorage.rpc.parameters import MAX_PRIORITY
from moorage.rpc.within import within
from moorage.rpc.wording import quote
from moorage_protocol import moorage_v1 as pb

_DEFAULT_INTERVAL_MS = 1000
_MIN_INTERVAL_MS = 50
_MAX_INTERVAL_MS = 60_000
_DEFAULT_WAIT_MS = 30_000
_MAX_WAIT_MS = 3_600_000
_DEFAULT_PRIORITY = 3
_MAX_DEVICE_CHARACTERS = 64
_POLICY_FIELDS = ("priority", "reserved_bytes", "limit_bytes", "no_limit", "pinned")

MIN_INTERVAL_S = _MIN_INTERVAL_MS / 1000


@dataclass(frozen=True, slots=True)
class HoldOrder:
    """What a Hold asks for. max_wait_s: how long to wait for the bytes at most."""

    device: str
    size_bytes: int
    priority: int
    max_wait_s: float


def interval_s(request: pb.WatchSnapshotRequest) -> float:
    """The least time between two snapshots."""
    interval_ms = request.interval_ms or _DEFAULT_INTERVAL_MS
    return within("interval_ms", interval_ms, _MIN_INTERVAL_MS, _MAX_INTERVAL_MS, zero="for 1000") / 1000


def hold_order(request: pb.HoldRequest) -> HoldOrder:
    """What is to be held. Whether there is such a device is the backend's to say."""
    if not 1 <= len(request.device) <= _MAX_DEVICE_CHARACTERS:
        raise InvalidRequest("device", expected='the name of a device, such as "cuda:0"', got=quote(request.device))
    max_wait_ms = request.max_wait_ms or _DEFAULT_WAIT_MS
    return HoldOrder(
        device=request.device,
        size_bytes=within("size_bytes", request.size_bytes, 1, MAX_BYTES),
        priority=within("priority", request.priority or _DEFAULT_PRIORITY, 1, MAX_PRIORITY, zero="for 3"),
        max_wait_s=within("max_wait_ms", max_wait_ms, 1, _MAX_WAIT_MS, zero="for 30000") / 1000,
    )


def rows_and_priority(request: pb.ExplainRequest) -> tuple[int, int]:
    """How many rows, and at which priority; 0 stands for the model's own."""
    rows = within("rows", request.rows, 1, 2**31 - 1)
    return rows, within("priority", request.priority, 0, MAX_PRIORITY)


def share_change(request: pb.SetModelPolicyRequest) -> Callable[[SharePolicy], SharePolicy]:
    """What makes a model's new standing of its present one: the fields that are there, all else as it is."""
    changes: dict[str, Any] = {}
    if request.HasField("priority"):
        changes["priority"] = within("priority", request.priority, 1, MAX_PRIORITY)
    if request.HasField("reserved_bytes"):
        changes["reserved_bytes"] = within("reserved_bytes", request.reserved_bytes, 0, MAX_BYTES)
    if request.HasField("limit_bytes"):
        changes["limit_bytes"] = within("limit_bytes", request.limit_bytes, 1, MAX_BYTES)
    if request.HasField("no_limit"):
        if not request.no_limit:
            raise InvalidRequest("no_limit", expected="true, or limit_bytes in its place", got="false")
        changes["limit_bytes"] = None
    if request.HasField("pinned"):
        changes["pinned"] = request.pinned
    if not changes:
        raise InvalidRequest("policy", expected=f"at least one of {', '.join(_POLICY_FIELDS)}", got="none of them")
    return lambda share: replace(share, **changes)
