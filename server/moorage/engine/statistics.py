"""Counts per model, as Triton's statistics extension defines them."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from moorage.domain.model import ModelKey
from moorage.domain.request import InferenceRequest, RunResult
from moorage.engine.joining import Joining
from moorage.engine.snapshot import BatchSizeStatistics, Duration, ModelStatistics
from moorage.scheduling.actions import Run

_NANOSECONDS = 1_000_000_000


@dataclass(slots=True)
class _Timed:
    count: int = 0
    ns: int = 0

    def add(self, count: int, ns: int) -> None:
        self.count += count
        self.ns += ns

    def freeze(self) -> Duration:
        return Duration(self.count, self.ns)


@dataclass(slots=True)
class _Compute:
    input: _Timed = field(default_factory=_Timed)
    infer: _Timed = field(default_factory=_Timed)
    output: _Timed = field(default_factory=_Timed)

    def add(self, count: int, result: RunResult) -> None:
        self.input.add(count, count * result.input_ns)
        self.infer.add(count, count * result.infer_ns)
        self.output.add(count, count * result.output_ns)


@dataclass(slots=True)
class _Model:
    last_inference_ms: int = 0
    rows: int = 0
    runs: int = 0
    success: _Timed = field(default_factory=_Timed)
    fail: _Timed = field(default_factory=_Timed)
    queue: _Timed = field(default_factory=_Timed)
    compute: _Compute = field(default_factory=_Compute)
    batches: dict[int, _Compute] = field(default_factory=dict)


class Statistics:
    """Adds up what the engine reports. A reloaded version goes on counting where it was."""

    def __init__(self) -> None:
        self._models: dict[tuple[str, int], _Model] = {}

    def _of(self, key: ModelKey) -> _Model:
        model = self._models.get((key.name, key.version))
        if model is None:
            model = self._models[key.name, key.version] = _Model()
        return model

    def run_succeeded(self, run: Run, result: RunResult, answered: Sequence[InferenceRequest], now: float) -> None:
        """Count a run, and those of its members that were answered."""
        model = self._of(run.key)
        model.last_inference_ms = time.time_ns() // 1_000_000
        model.rows += sum(request.rows for request in answered)
        model.runs += 1
        model.compute.add(len(answered), result)
        if run.rows not in model.batches:
            model.batches[run.rows] = _Compute()
        model.batches[run.rows].add(1, result)
        for request in answered:
            model.success.add(1, int((now - request.arrived_s) * _NANOSECONDS))
            model.queue.add(1, int((run.started_s - request.arrived_s) * _NANOSECONDS))

    def split_succeeded(self, request: InferenceRequest, joining: Joining, now: float) -> None:
        """Count a request that was computed in pieces, by runs that are counted. It is charged for all of them."""
        model = self._of(request.model)
        model.rows += request.rows
        model.success.add(1, int((now - request.arrived_s) * _NANOSECONDS))
        model.queue.add(1, int((joining.started_s - request.arrived_s) * _NANOSECONDS))
        model.compute.input.add(1, joining.input_ns)
        model.compute.infer.add(1, joining.infer_ns)
        model.compute.output.add(1, joining.output_ns)

    def stepped_succeeded(self, request: InferenceRequest, last: Run, now: float) -> None:
        """Count a stepped request. Its steps are many requests' work, so that no compute time is its alone."""
        model = self._of(request.model)
        model.last_inference_ms = time.time_ns() // 1_000_000
        model.rows += request.rows
        model.runs += 1
        model.success.add(1, int((now - request.arrived_s) * _NANOSECONDS))

    def failed(self, request: InferenceRequest, now: float) -> None:
        """Count a request that was answered with an error."""
        self._of(request.model).fail.add(1, int((now - request.arrived_s) * _NANOSECONDS))

    def of(self, key: ModelKey) -> ModelStatistics:
        """A frozen copy of one model's counts."""
        model = self._models.get((key.name, key.version)) or _Model()
        return ModelStatistics(
            last_inference_ms=model.last_inference_ms,
            inference_count=model.rows,
            execution_count=model.runs,
            success=model.success.freeze(),
            fail=model.fail.freeze(),
            queue=model.queue.freeze(),
            compute_input=model.compute.input.freeze(),
            compute_infer=model.compute.infer.freeze(),
            compute_output=model.compute.output.freeze(),
            batches=_batches(model),
        )


def _batches(model: _Model) -> Mapping[int, BatchSizeStatistics]:
    return {
        rows: BatchSizeStatistics(item.input.freeze(), item.infer.freeze(), item.output.freeze())
        for rows, item in sorted(model.batches.items())
    }
