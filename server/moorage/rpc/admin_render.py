"""Snapshots and explanations as messages of moorage.v1."""

from collections.abc import Iterable
from dataclasses import asdict

from moorage.domain.model import ModelKey, ModelState, SharePolicy
from moorage.engine.snapshot import DeviceSnapshot, ModelSnapshot, ServerSnapshot, UnderstudySnapshot
from moorage.rpc.lookup import current
from moorage.rpc.metadata import server_ready
from moorage.scheduling.explain import Explanation, Holder, Verdict
from moorage.scheduling.foreseen import RunEstimate
from moorage_protocol import moorage_v1 as pb

_STATES = {
    ModelState.UNLOADED: pb.MODEL_STATE_UNLOADED,
    ModelState.LOADING: pb.MODEL_STATE_LOADING,
    ModelState.RESIDENT: pb.MODEL_STATE_RESIDENT,
    ModelState.OFFLOADING: pb.MODEL_STATE_OFFLOADING,
    ModelState.OFFLOADED: pb.MODEL_STATE_OFFLOADED,
    ModelState.RESTORING: pb.MODEL_STATE_RESTORING,
    ModelState.UNLOADING: pb.MODEL_STATE_UNLOADING,
    ModelState.FAILED: pb.MODEL_STATE_FAILED,
}
_VERDICTS = {
    Verdict.NOW: pb.VERDICT_NOW,
    Verdict.EVICT: pb.VERDICT_EVICT,
    Verdict.PREEMPT: pb.VERDICT_PREEMPT,
    Verdict.WAIT: pb.VERDICT_WAIT,
    Verdict.REFUSED: pb.VERDICT_REFUSED,
    Verdict.NEVER: pb.VERDICT_NEVER,
}


def snapshot_message(snapshot: ServerSnapshot) -> pb.Snapshot:
    """The whole picture. Of two generations of a version in the middle of a swap it shows the one that serves."""
    return pb.Snapshot(
        ready=server_ready(snapshot),
        draining=snapshot.draining,
        models=[_model(model, draining=snapshot.draining) for model in current(snapshot)],
        broken_models=[pb.BrokenModel(name=broken.name, reason=broken.reason) for broken in snapshot.broken],
        devices=[_device(device) for device in snapshot.devices],
    )


def policy_message(share: SharePolicy) -> pb.ModelPolicy:
    """A model's standing."""
    return pb.ModelPolicy(
        priority=share.priority,
        reserved_bytes=share.reserved_bytes,
        limit_bytes=share.limit_bytes,
        pinned=share.pinned,
    )


def explanation_message(key: ModelKey, explanation: Explanation) -> pb.ExplainResponse:
    """What would happen to a request for this model."""
    return pb.ExplainResponse(
        model_name=key.name,
        model_version=str(key.version),
        verdict=_VERDICTS[explanation.verdict],
        device=explanation.device,
        rows=explanation.rows,
        priority=explanation.priority,
        needed_bytes=explanation.needed_bytes,
        free_bytes=explanation.free_bytes,
        missing_bytes=explanation.missing_bytes,
        evict=_holders(explanation.evict),
        preempt=_holders(explanation.preempt),
        holders=_holders(explanation.holders),
        reason=explanation.reason,
    )


def estimates_message(key: ModelKey, estimates: Iterable[RunEstimate]) -> pb.GetRunEstimatesResponse:
    """What is expected of a model's runs."""
    return pb.GetRunEstimatesResponse(
        model_name=key.name,
        model_version=str(key.version),
        estimates=[
            pb.RunEstimate(
                rows=estimate.rows,
                row_bytes=estimate.row_bytes,
                leased_bytes=estimate.leased_bytes,
                expected_bytes=estimate.expected_bytes,
                measured_bytes=estimate.measured_bytes,
                bytes_error=estimate.bytes_error,
                measured_runs=estimate.measured_runs,
                expected_s=estimate.expected_s,
                seconds_error=estimate.seconds_error,
            )
            for estimate in estimates
        ],
    )


def _holders(holders: Iterable[Holder]) -> list[pb.Holder]:
    return [
        pb.Holder(owner=holder.owner, kind=holder.kind, size_bytes=holder.size_bytes, priority=holder.priority)
        for holder in holders
    ]


def _model(model: ModelSnapshot, *, draining: bool) -> pb.Model:
    return pb.Model(
        name=model.key.name,
        version=str(model.key.version),
        state=_STATES[model.state],
        ready=model.ready and not draining,
        reason=model.reason,
        device=model.device or "",
        leased_bytes={kind: size_bytes for kind, size_bytes in model.leased_bytes.items() if size_bytes},
        host_bytes=model.host_bytes,
        policy=policy_message(model.share),
        waiting_rows=model.waiting_rows,
        running_requests=model.running,
        residency_counts=pb.ResidencyCounts(**asdict(model.residency)),
        understudies=[_understudy(understudy) for understudy in model.understudies],
    )


def _understudy(understudy: UnderstudySnapshot) -> pb.Understudy:
    return pb.Understudy(
        version=understudy.version,
        state=_STATES[understudy.state],
        reason=understudy.reason,
        device=understudy.device,
        leased_bytes={kind: size_bytes for kind, size_bytes in understudy.leased_bytes.items() if size_bytes},
        host_bytes=understudy.host_bytes,
        waiting_rows=understudy.waiting_rows,
        running_requests=understudy.running,
    )


def _device(device: DeviceSnapshot) -> pb.Device:
    return pb.Device(
        name=device.name,
        capacity_bytes=device.capacity_bytes,
        configured_bytes=device.configured_bytes,
        leased_bytes={kind: size_bytes for kind, size_bytes in device.leased_bytes.items() if size_bytes},
        host_capacity_bytes=device.host_capacity_bytes,
        host_leased_bytes=device.host_leased_bytes,
        run_slots=device.run_slots,
        running_runs=device.running,
        waiting=device.waiting,
    )
