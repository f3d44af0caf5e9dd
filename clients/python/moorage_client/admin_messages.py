"""The admin service's messages, built from and turned into what callers of the clients see."""

from collections.abc import Iterable

from moorage_client.errors import InvalidRequest
from moorage_client.holders import Holder
from moorage_client.messages import MAX_UINT32, whole
from moorage_client.status import (
    BrokenModel,
    DeviceStatus,
    Explanation,
    ModelPolicy,
    ModelStatus,
    PolicyChange,
    ResidencyCounts,
    RunEstimate,
    Snapshot,
    Understudy,
)
from moorage_protocol import moorage_v1 as pb

_MAX_UINT64 = 2**64 - 1


def watch_request(interval_s: float) -> pb.WatchSnapshotRequest:
    """Raises InvalidRequest."""
    return pb.WatchSnapshotRequest(interval_ms=_milliseconds("interval_s", interval_s))


def policy_request(model: str, version: str, change: PolicyChange) -> pb.SetModelPolicyRequest:
    """Raises InvalidRequest."""
    if change.no_limit and change.limit_bytes is not None:
        raise InvalidRequest("limit_bytes: expected none beside no_limit, got both")
    request = pb.SetModelPolicyRequest(model_name=model, model_version=version)
    if change.priority is not None:
        request.priority = whole("priority", change.priority, MAX_UINT32)
    if change.reserved_bytes is not None:
        request.reserved_bytes = whole("reserved_bytes", change.reserved_bytes, _MAX_UINT64)
    if change.limit_bytes is not None:
        request.limit_bytes = whole("limit_bytes", change.limit_bytes, _MAX_UINT64)
    if change.no_limit:
        request.no_limit = True
    if change.pinned is not None:
        request.pinned = change.pinned
    return request


def explain_request(model: str, version: str, rows: int, priority: int) -> pb.ExplainRequest:
    """Raises InvalidRequest."""
    return pb.ExplainRequest(
        model_name=model,
        model_version=version,
        rows=whole("rows", rows, MAX_UINT32),
        priority=whole("priority", priority, MAX_UINT32),
    )


def hold_request(device: str, size_bytes: int, priority: int, max_wait_s: float) -> pb.HoldRequest:
    """Raises InvalidRequest."""
    return pb.HoldRequest(
        device=device,
        size_bytes=whole("size_bytes", size_bytes, _MAX_UINT64),
        priority=whole("priority", priority, MAX_UINT32),
        max_wait_ms=_milliseconds("max_wait_s", max_wait_s),
    )


def snapshot_of(message: pb.Snapshot) -> Snapshot:
    """A server's state."""
    return Snapshot(
        ready=message.ready,
        draining=message.draining,
        models=tuple(_model(model) for model in message.models),
        broken_models=tuple(BrokenModel(broken.name, broken.reason) for broken in message.broken_models),
        devices=tuple(_device(device) for device in message.devices),
    )


def policy_of(message: pb.ModelPolicy) -> ModelPolicy:
    """A model's standing."""
    limit_bytes = message.limit_bytes if message.HasField("limit_bytes") else None
    return ModelPolicy(message.priority, message.reserved_bytes, limit_bytes, message.pinned)


def explanation_of(message: pb.ExplainResponse) -> Explanation:
    """Explain's answer."""
    return Explanation(
        model=message.model_name,
        version=message.model_version,
        verdict=_plain(pb.Verdict.items(), message.verdict, "VERDICT_"),
        device=message.device,
        rows=message.rows,
        priority=message.priority,
        needed_bytes=message.needed_bytes,
        free_bytes=message.free_bytes,
        missing_bytes=message.missing_bytes,
        evict=_holders(message.evict),
        preempt=_holders(message.preempt),
        holders=_holders(message.holders),
        reason=message.reason,
    )


def estimates_of(message: pb.GetRunEstimatesResponse) -> tuple[RunEstimate, ...]:
    """What a server expects of a model's runs."""
    return tuple(map(_estimate, message.estimates))


def _estimate(message: pb.RunEstimate) -> RunEstimate:
    return RunEstimate(
        rows=message.rows,
        row_bytes=message.row_bytes,
        leased_bytes=message.leased_bytes,
        expected_bytes=message.expected_bytes if message.HasField("expected_bytes") else None,
        measured_bytes=message.measured_bytes if message.HasField("measured_bytes") else None,
        bytes_error=message.bytes_error if message.HasField("bytes_error") else None,
        measured_runs=message.measured_runs,
        expected_s=message.expected_s if message.HasField("expected_s") else None,
        seconds_error=message.seconds_error if message.HasField("seconds_error") else None,
    )


def _model(message: pb.Model) -> ModelStatus:
    counts = message.residency_counts
    return ModelStatus(
        name=message.name,
        version=message.version,
        state=_plain(pb.ModelState.items(), message.state, "MODEL_STATE_"),
        ready=message.ready,
        reason=message.reason,
        device=message.device,
        leased_bytes=dict(sorted(message.leased_bytes.items())),
        host_bytes=message.host_bytes,
        policy=policy_of(message.policy),
        waiting_rows=message.waiting_rows,
        running_requests=message.running_requests,
        residency_counts=ResidencyCounts(
            loads=counts.loads,
            evictions=counts.evictions,
            restores=counts.restores,
            preemptions=counts.preemptions,
            out_of_memory=counts.out_of_memory,
            oom_alone=counts.oom_alone,
            oom_evicted=counts.oom_evicted,
            oom_halved=counts.oom_halved,
            oom_other_device=counts.oom_other_device,
            oom_fallback=counts.oom_fallback,
            oom_refused=counts.oom_refused,
        ),
        understudies=tuple(map(_understudy, message.understudies)),
    )


def _understudy(message: pb.Understudy) -> Understudy:
    return Understudy(
        version=message.version,
        state=_plain(pb.ModelState.items(), message.state, "MODEL_STATE_"),
        reason=message.reason,
        device=message.device,
        leased_bytes=dict(sorted(message.leased_bytes.items())),
        host_bytes=message.host_bytes,
        waiting_rows=message.waiting_rows,
        running_requests=message.running_requests,
    )


def _device(message: pb.Device) -> DeviceStatus:
    return DeviceStatus(
        name=message.name,
        capacity_bytes=message.capacity_bytes,
        configured_bytes=message.configured_bytes,
        leased_bytes=dict(sorted(message.leased_bytes.items())),
        host_capacity_bytes=message.host_capacity_bytes,
        host_leased_bytes=message.host_leased_bytes,
        run_slots=message.run_slots,
        running_runs=message.running_runs,
        waiting=message.waiting,
    )


def _holders(messages: Iterable[pb.Holder]) -> tuple[Holder, ...]:
    return tuple(Holder(holder.owner, holder.kind, holder.size_bytes, holder.priority) for holder in messages)


def _plain(names: Iterable[tuple[str, int]], number: int, prefix: str) -> str:
    """The enum's name for a number, as people write it; "unknown" for one of a server that is newer than this."""
    known = {value: name.removeprefix(prefix).lower() for name, value in names if value}
    return known.get(number, "unknown")


def _milliseconds(field: str, seconds: float) -> int:
    """Whole milliseconds; never 0 for what is not 0, since that stands for the server's own choice."""
    if not 0 < seconds <= MAX_UINT32 / 1000:
        raise InvalidRequest(f"{field}: expected seconds above 0, got {seconds!r}")
    return max(1, round(seconds * 1000))
