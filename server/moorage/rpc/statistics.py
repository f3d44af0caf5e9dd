"""ModelStatistics, from the snapshot."""

from moorage.engine.snapshot import BatchSizeStatistics, Duration, ModelSnapshot
from moorage.engine.snapshot import ModelStatistics as Counted
from moorage.rpc.lookup import matching
from moorage.rpc.ports import Backend
from moorage_protocol import inference as pb


class Statistics:
    """The handler."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def model_statistics(self, request: pb.ModelStatisticsRequest) -> pb.ModelStatisticsResponse:
        """Counts and times of one model, or of all where no name is given. Raises InvalidRequest, ModelNotFound."""
        models = matching(self._backend.snapshot(), request.name, request.version)
        return pb.ModelStatisticsResponse(model_stats=[_model_statistics(model) for model in models])


def _model_statistics(model: ModelSnapshot) -> pb.ModelStatistics:
    counted = model.statistics
    return pb.ModelStatistics(
        name=model.key.name,
        version=str(model.key.version),
        last_inference=counted.last_inference_ms,
        inference_count=counted.inference_count,
        execution_count=counted.execution_count,
        inference_stats=_inference_statistics(counted),
        batch_stats=[_batch_statistics(rows, batch) for rows, batch in sorted(counted.batches.items())],
        memory_usage=_memory_usage(model),
    )


def _inference_statistics(counted: Counted) -> pb.InferStatistics:
    return pb.InferStatistics(
        success=_duration(counted.success),
        fail=_duration(counted.fail),
        queue=_duration(counted.queue),
        compute_input=_duration(counted.compute_input),
        compute_infer=_duration(counted.compute_infer),
        compute_output=_duration(counted.compute_output),
        cache_hit=_duration(Duration()),
        cache_miss=_duration(Duration()),
    )


def _batch_statistics(rows: int, batch: BatchSizeStatistics) -> pb.InferBatchStatistics:
    return pb.InferBatchStatistics(
        batch_size=rows,
        compute_input=_duration(batch.compute_input),
        compute_infer=_duration(batch.compute_infer),
        compute_output=_duration(batch.compute_output),
    )


def _memory_usage(model: ModelSnapshot) -> list[pb.MemoryUsage]:
    """All the bytes that the model holds on its device, of whatever kind."""
    if model.device is None:
        return []
    kind, _, index = model.device.partition(":")
    memory_type = "CPU" if kind == "cpu" else "GPU"
    return [pb.MemoryUsage(type=memory_type, id=int(index or 0), byte_size=sum(model.leased_bytes.values()))]


def _duration(duration: Duration) -> pb.StatisticDuration:
    return pb.StatisticDuration(count=duration.count, ns=duration.ns)
