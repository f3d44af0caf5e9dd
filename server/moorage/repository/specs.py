"""From a manifest and its files to the ModelSpec that the rest of the server works with."""

from pathlib import Path

from moorage.domain.model import (
    BatchingPolicy,
    MemoryPolicy,
    ModelSpec,
    PreemptionPolicy,
    QueuePolicy,
    RatePolicy,
    SharePolicy,
    SimulatedCosts,
)
from moorage.repository.files import FileSummary
from moorage.repository.manifest import Manifest
from moorage.repository.tables import BatchingTable, MemoryTable, RateTable, SchedulingTable, SimulatedTable


def spec_of(manifest: Manifest, name: str, version: int, path: Path, files: FileSummary) -> ModelSpec:
    """One version of a model. `path` is its resolved folder."""
    return ModelSpec(
        name=name,
        version=version,
        runtime=manifest.runtime,
        inputs=tuple(table.spec() for table in manifest.inputs),
        outputs=tuple(table.spec() for table in manifest.outputs),
        path=path,
        max_batch_size=manifest.max_batch_size,
        instances=manifest.instances,
        decoupled=manifest.decoupled,
        loading=manifest.loading,
        load_timeout_s=manifest.load_timeout_s,
        isolation=manifest.placement.isolation,
        devices=manifest.placement.devices,
        fallback=manifest.placement.fallback or "",
        memory=_memory_policy(manifest.memory),
        queue=_queue_policy(manifest.scheduling),
        rate=_rate_policy(manifest.rate_limit),
        batching=_batching_policy(manifest.batching),
        share=_share_policy(manifest),
        weight=manifest.scheduling.weight,
        preemption=PreemptionPolicy(manifest.scheduling.preemption, manifest.scheduling.max_preemptions),
        simulated=_simulated_costs(manifest.simulated or SimulatedTable()),
        parameters=manifest.parameters,
        fingerprint=files.fingerprint,
        weights_hint_bytes=files.weights_bytes,
        versions=manifest.versions,
        warmup=manifest.warmup_runs,
    )


def _memory_policy(table: MemoryTable) -> MemoryPolicy:
    return MemoryPolicy(
        weights_bytes=table.weights_bytes,
        workspace_fixed_bytes=table.workspace_fixed_bytes,
        workspace_per_row_bytes=table.workspace_per_row_bytes,
        state_bytes=table.state_bytes,
    )


def _queue_policy(table: SchedulingTable) -> QueuePolicy:
    return QueuePolicy(table.max_queue_rows, table.max_queue_bytes, table.default_timeout_s)


def _rate_policy(table: RateTable) -> RatePolicy:
    return RatePolicy(table.requests_per_s, table.rows_per_s, table.burst_s)


def _batching_policy(table: BatchingTable) -> BatchingPolicy:
    return BatchingPolicy(
        table.max_queue_delay_s,
        table.low_watermark,
        table.preferred_sizes,
        split_requests=table.split_requests,
        per_request_parameters=table.per_request_parameters,
    )


def _share_policy(manifest: Manifest) -> SharePolicy:
    return SharePolicy(
        priority=manifest.scheduling.priority,
        reserved_bytes=manifest.memory.reserved_bytes,
        limit_bytes=manifest.memory.limit_bytes,
        pinned=manifest.memory.pinned,
    )


def _simulated_costs(table: SimulatedTable) -> SimulatedCosts:
    return SimulatedCosts(
        load_s=table.load_s,
        restore_s=table.restore_s,
        run_s=table.run_s,
        run_s_per_row=table.run_s_per_row,
        steps=table.steps,
        state_bytes=table.state_bytes,
    )
