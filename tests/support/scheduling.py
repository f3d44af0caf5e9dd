"""Specs and requests for tests of the scheduling core."""

from collections.abc import Hashable
from pathlib import PurePath

from moorage.domain.model import (
    BatchingPolicy,
    Isolation,
    Loading,
    MemoryPolicy,
    ModelKey,
    ModelSpec,
    PreemptionPolicy,
    QueuePolicy,
    SharePolicy,
    SimulatedCosts,
    WarmupRun,
)
from moorage.domain.request import BatchOutput, InferenceRequest, RunResult
from moorage.domain.tensor import Datatype, InputTensor, TensorSpec
from moorage.scheduling.state import Limits

MODEL = ModelKey("model", 1)
NO_BOUND = QueuePolicy()
NO_SHARE = SharePolicy()
BY_WHAT_PAYS = BatchingPolicy()
BY_STEPS = PreemptionPolicy()
NO_LIMITS = Limits()
# Models may be put out as soon as they are there.
UNGUARDED = Limits(min_residency_s=0.0)
# What a step of a decoupled model gives: nothing that the scheduler looks at.
ANSWER = BatchOutput("y", Datatype.UINT8, (1,), memoryview(b"y"), (1,))
RESULT = RunResult(outputs=(), input_ns=1, infer_ns=2, output_ns=3)


def make_spec(
    name: str = "model",
    *,
    weights: int | None = 10,
    hint: int = 0,
    fixed: int = 0,
    per_row: int = 0,
    max_batch_size: int = 4,
    instances: int = 1,
    loading: Loading = Loading.EXPLICIT,
    isolation: Isolation = Isolation.SHARED,
    devices: tuple[str, ...] = ("*",),
    fallback: str = "",
    queue: QueuePolicy = NO_BOUND,
    load_timeout_s: float = 100.0,
    share: SharePolicy = NO_SHARE,
    preemption: PreemptionPolicy = BY_STEPS,
    steps: int = 1,
    state: int = 0,
    growth: int = 0,
    decoupled: bool = False,
    offloads: bool = False,
    batching: BatchingPolicy = BY_WHAT_PAYS,
    weight: float = 1.0,
    warmup: tuple[WarmupRun, ...] = (),
    inputs: tuple[TensorSpec, ...] = (),
) -> ModelSpec:
    """steps, growth (of a state, in each step) and offloads are for whoever plays its worker."""
    return ModelSpec(
        name=name,
        version=1,
        runtime="simulated",
        inputs=inputs,
        outputs=(),
        path=PurePath("models", name, "1"),
        max_batch_size=max_batch_size,
        instances=instances,
        decoupled=decoupled,
        loading=loading,
        load_timeout_s=load_timeout_s,
        isolation=isolation,
        devices=devices,
        fallback=fallback,
        memory=MemoryPolicy(weights, fixed, per_row, state or None),
        queue=queue,
        share=share,
        batching=batching,
        weight=weight,
        preemption=preemption,
        simulated=SimulatedCosts(steps=steps, state_bytes=state),
        parameters={"growth": growth, "offloads": offloads},
        weights_hint_bytes=hint,
        warmup=warmup,
    )


def make_request(
    request_id: int = 1,
    *,
    model: ModelKey = MODEL,
    rows: int = 1,
    size_bytes: int = 1,
    arrived_s: float = 0.0,
    deadline_s: float = 1000.0,
    batch_key: Hashable | None = "same",
    priority: int = 0,
    padded: tuple[tuple[int, ...], ...] = (),
) -> InferenceRequest:
    return InferenceRequest(
        request_id=request_id,
        client_id="",
        model=model,
        inputs=(InputTensor("x", Datatype.UINT8, (rows,), bytes(size_bytes)),),
        rows=rows,
        size_bytes=size_bytes,
        arrived_s=arrived_s,
        deadline_s=deadline_s,
        batch_key=batch_key,
        priority=priority,
        padded=padded,
    )
