"""Of everything there is as much as lets models work together, and sometimes not quite."""

from hypothesis import strategies as st

from moorage.domain.model import (
    BatchingPolicy,
    Isolation,
    Loading,
    ModelKey,
    ModelSpec,
    Preemption,
    PreemptionPolicy,
    QueuePolicy,
    SharePolicy,
    WarmupRun,
)
from moorage.scheduling.state import DeviceLimits, Limits
from tests.support.scheduling import make_spec

KEYS = [ModelKey("a", 1), ModelKey("b", 1), ModelKey("b", 1, generation=1), ModelKey("c", 1), ModelKey("d", 1)]

SPLIT = BatchingPolicy(split_requests=True)

devices = st.builds(
    DeviceLimits,
    capacity_bytes=st.integers(20, 60),
    context_bytes=st.sampled_from([0, 0, 3, 12]),
    host_bytes=st.sampled_from([0, 10, 100]),
    run_slots=st.sampled_from([1, 1, 2, 8]),
)
limits = st.builds(
    Limits,
    max_attempts=st.integers(1, 3),
    max_load_crashes=st.integers(1, 3),
    max_input_bytes=st.integers(4, 40),
    ageing_s=st.sampled_from([0.5, 10.0, 1e6]),
    min_residency_s=st.sampled_from([0.0, 0.0, 1.0, 20.0]),
)
shares = st.builds(
    SharePolicy,
    priority=st.integers(1, 5),
    reserved_bytes=st.sampled_from([0, 0, 0, 8]),
    limit_bytes=st.sampled_from([None, None, None, 12]),
    pinned=st.sampled_from([False, False, False, True]),
)
batching = st.sampled_from(
    [BatchingPolicy(), BatchingPolicy(0.0), BatchingPolicy(2.0, 3), BatchingPolicy(30.0, 0, (2, 4)), SPLIT, SPLIT]
)
# What runs turn out to take; most are not measured.
peaks = st.sampled_from([None, None, None, 0, 2, 9, 30])
preemption = st.builds(
    PreemptionPolicy,
    by=st.sampled_from(["step", "step", "kill", "never"]).map(Preemption),
    max_preemptions=st.integers(0, 3),
)


def _fits_together(spec: ModelSpec) -> bool:
    splits = spec.batching.split_requests and spec.max_batch_size == 0
    decouples = spec.decoupled and (spec.batching.split_requests or spec.simulated.steps == 1)
    return not splits and not decouples and (spec.instances == 1 or spec.simulated.steps == 1)


specs = st.builds(
    make_spec,
    weights=st.none() | st.integers(0, 12) | st.integers(0, 40),
    hint=st.integers(0, 15),
    fixed=st.sampled_from([0, 0, 1, 5, 20]),
    per_row=st.sampled_from([0, 1, 4]),
    max_batch_size=st.sampled_from([0, 1, 4, 8]),
    instances=st.sampled_from([1, 1, 2, 3]),
    loading=st.sampled_from(Loading),
    isolation=st.sampled_from([Isolation.SHARED, Isolation.SHARED, Isolation.DEDICATED]),
    devices=st.sampled_from([("d0",), ("d0",), ("d0",), ("d1",), ("d?",), ("*",), ("tpu:*",)]),
    fallback=st.sampled_from(["", "", "d1", "d0", "d9"]),
    queue=st.builds(QueuePolicy, max_rows=st.integers(1, 40), max_bytes=st.integers(1, 200)),
    load_timeout_s=st.sampled_from([3.0, 20.0, 100.0]),
    share=shares,
    batching=batching,
    preemption=preemption,
    steps=st.sampled_from([1, 1, 2, 4]),
    state=st.sampled_from([0, 2, 6]),
    growth=st.sampled_from([0, 0, 1, 3]),
    offloads=st.booleans(),
    decoupled=st.sampled_from([False, False, True]),
    warmup=st.sampled_from([(), (), (WarmupRun(1),), (WarmupRun(2), WarmupRun(4))]),
).filter(_fits_together)
