"""The admin service's unary methods, over the wire, and what they refuse."""

from dataclasses import replace
from typing import Any

import grpc
import pytest

from moorage.domain.model import ModelState, SharePolicy
from moorage.domain.tensor import TensorSpec
from moorage.engine.snapshot import BrokenModel, ResidencyCounts
from moorage.rpc.admin_render import snapshot_message
from moorage.scheduling.foreseen import RunEstimate
from moorage_protocol import moorage_v1 as pb
from tests.unit.rpc.admin_calls import ask, failure, figures, stream
from tests.unit.rpc.echo_backend import EchoBackend, echo_spec, served
from tests.unit.rpc.ledger import MIB
from tests.unit.rpc.running import connected, on_loop

Code = grpc.StatusCode

WEIGHTS = 90 * MIB


def backend() -> EchoBackend:
    tensor = TensorSpec("x", "FP32", [1])
    cold = served(echo_spec("cold", tensor, version=3), ModelState.OFFLOADED)
    return EchoBackend(
        served(echo_spec("echo", tensor)),
        replace(
            cold,
            host_bytes=7,
            waiting_rows=5,
            running=2,
            share=SharePolicy(priority=1, reserved_bytes=64, limit_bytes=128, pinned=True),
            residency=ResidencyCounts(loads=1, evictions=2, restores=3, preemptions=4, out_of_memory=5),
        ),
        broken=(BrokenModel("broken", "no model.py"),),
    )


@on_loop
async def test_a_snapshot_shows_all_there_is() -> None:
    async with connected(backend()) as channel:
        answer = await ask(channel, "GetSnapshot", pb.GetSnapshotRequest())
    snapshot = answer.snapshot
    assert (snapshot.ready, snapshot.draining) == (True, False)
    cold, echo = snapshot.models
    assert (echo.name, echo.version, echo.state, echo.ready) == ("echo", "1", pb.MODEL_STATE_RESIDENT, True)
    assert (echo.device, dict(echo.leased_bytes)) == ("cpu", {"weights": WEIGHTS})
    assert not echo.policy.HasField("limit_bytes")
    assert (cold.state, cold.device, cold.reason) == (pb.MODEL_STATE_OFFLOADED, "", "not asked for yet")
    assert (cold.host_bytes, cold.waiting_rows, cold.running_requests) == (7, 5, 2)
    assert cold.policy == pb.ModelPolicy(priority=1, reserved_bytes=64, limit_bytes=128, pinned=True)
    assert cold.residency_counts == pb.ResidencyCounts(loads=1, evictions=2, restores=3, preemptions=4, out_of_memory=5)
    assert [(broken.name, broken.reason) for broken in snapshot.broken_models] == [("broken", "no model.py")]
    (device,) = snapshot.devices
    assert (device.name, device.capacity_bytes, device.configured_bytes) == ("cpu", 2048 * MIB, 2048 * MIB)


@pytest.mark.parametrize("state", ModelState)
def test_every_state_has_its_number(state: ModelState) -> None:
    model = served(echo_spec("echo"), state)
    (shown,) = snapshot_message(EchoBackend(model).snapshot()).models
    assert pb.ModelState.Name(shown.state) == f"MODEL_STATE_{state.name}"


@on_loop
async def test_while_it_drains_nothing_is_ready() -> None:
    engine = backend()
    engine.draining = True
    async with connected(engine) as channel:
        snapshot = (await ask(channel, "GetSnapshot", pb.GetSnapshotRequest())).snapshot
    assert (snapshot.ready, snapshot.draining) == (False, True)
    assert not any(model.ready for model in snapshot.models)


@on_loop
async def test_a_policy_changes_where_it_is_told_to_and_only_there() -> None:
    engine = backend()
    async with connected(engine) as channel:
        answer = await ask(channel, "SetModelPolicy", pb.SetModelPolicyRequest(model_name="cold", priority=5))
        assert (answer.model_name, answer.model_version) == ("cold", "3")
        assert answer.policy == pb.ModelPolicy(priority=5, reserved_bytes=64, limit_bytes=128, pinned=True)
        request = pb.SetModelPolicyRequest(
            model_name="cold", model_version="3", reserved_bytes=0, no_limit=True, pinned=False
        )
        answer = await ask(channel, "SetModelPolicy", request)
        assert answer.policy == pb.ModelPolicy(priority=5)
        assert engine.models["cold"].share == SharePolicy(priority=5)
        await ask(channel, "SetModelPolicy", pb.SetModelPolicyRequest(model_name="cold", limit_bytes=9))
    assert engine.models["cold"].share == SharePolicy(priority=5, limit_bytes=9)


@on_loop
async def test_a_reservation_that_is_not_free_says_what_is_missing_and_who_holds_it() -> None:
    engine = backend()
    async with connected(engine) as channel:
        hold = stream(channel, "Hold", pb.HoldRequest(device="cpu", size_bytes=MIB))
        assert await hold.read()
        request = pb.SetModelPolicyRequest(model_name="echo", reserved_bytes=4096 * MIB)
        error = await failure(ask(channel, "SetModelPolicy", request))
    assert error.code() is Code.RESOURCE_EXHAUSTED
    assert figures(error) == {
        "device": "cpu",
        "bytes_needed": str(4096 * MIB),
        "bytes_free": str(2047 * MIB),
        "held_by": f"hold-0 held {MIB}",
    }
    assert engine.models["echo"].share == SharePolicy()


@on_loop
async def test_an_explanation_says_who_would_go() -> None:
    engine = backend()
    async with connected(engine) as channel:
        fits = await ask(channel, "Explain", pb.ExplainRequest(model_name="cold", rows=2))
        assert (fits.model_name, fits.model_version, fits.verdict) == ("cold", "3", pb.VERDICT_NOW)
        assert (fits.device, fits.rows, fits.priority, fits.needed_bytes) == ("cpu", 2, 1, 2 * MIB)
        assert not fits.evict
        evicts = await ask(channel, "Explain", pb.ExplainRequest(model_name="cold", rows=2000, priority=2))
        assert (evicts.verdict, evicts.priority) == (pb.VERDICT_EVICT, 2)
        assert list(evicts.evict) == [pb.Holder(owner="echo/1", kind="weights", size_bytes=WEIGHTS, priority=3)]
        assert list(evicts.holders) == list(evicts.evict)
        assert evicts.free_bytes == 2048 * MIB - WEIGHTS
        waits = await ask(channel, "Explain", pb.ExplainRequest(model_name="cold", rows=3000, priority=2))
        assert (waits.verdict, waits.missing_bytes) == (pb.VERDICT_WAIT, (3000 - 2048) * MIB)
    assert "cold/3" in waits.reason


@on_loop
async def test_estimates_leave_out_what_is_not_known() -> None:
    engine = backend()
    engine.estimates = (RunEstimate(2, 63, 12, 10, 9, -0.25, 4, 0.5, 0.125), RunEstimate(1, 0, 7))
    async with connected(engine) as channel:
        answer = await ask(channel, "GetRunEstimates", pb.GetRunEstimatesRequest(model_name="echo"))
    assert (answer.model_name, answer.model_version) == ("echo", "1")
    assert list(answer.estimates) == [
        pb.RunEstimate(
            rows=2, row_bytes=63, leased_bytes=12, expected_bytes=10, measured_bytes=9, bytes_error=-0.25,
            measured_runs=4, expected_s=0.5, seconds_error=0.125,
        ),
        pb.RunEstimate(rows=1, leased_bytes=7),
    ]  # fmt: skip


POLICY = {"model_name": "echo"}
EXPLAIN = {"model_name": "echo", "rows": 1}
HOLD = {"device": "cpu", "size_bytes": 1}
WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("SetModelPolicy", POLICY, "policy: expected at least one of priority"),
    ("SetModelPolicy", POLICY | {"priority": 0}, "priority: expected a whole number from 1 to 5, got 0"),
    ("SetModelPolicy", POLICY | {"priority": 6}, "priority: "),
    ("SetModelPolicy", POLICY | {"reserved_bytes": 2**53 + 1}, "reserved_bytes: "),
    ("SetModelPolicy", POLICY | {"limit_bytes": 0}, "limit_bytes: expected a whole number from 1"),
    ("SetModelPolicy", POLICY | {"no_limit": False}, "no_limit: expected true"),
    ("SetModelPolicy", {"priority": 1}, "model_name: "),
    ("SetModelPolicy", {"model_name": "../x", "priority": 1}, "model_name: "),
    ("SetModelPolicy", POLICY | {"model_version": "-1", "priority": 1}, "model_version: "),
    ("Explain", {"model_name": "echo"}, "rows: expected a whole number from 1"),
    ("Explain", EXPLAIN | {"priority": 6}, "priority: expected a whole number from 0 to 5, got 6"),
    ("Explain", EXPLAIN | {"model_name": ""}, "model_name: "),
    ("Explain", EXPLAIN | {"model_version": "latest"}, "model_version: "),
    ("GetRunEstimates", {}, "model_name: "),
    ("GetRunEstimates", {"model_name": "echo", "model_version": "-1"}, "model_version: "),
    ("WatchSnapshot", {"interval_ms": 49}, "interval_ms: expected a whole number from 50 to 60000, or 0 for 1000"),
    ("WatchSnapshot", {"interval_ms": 60_001}, "interval_ms: "),
    ("Hold", {"size_bytes": 1}, "device: expected the name of a device"),
    ("Hold", HOLD | {"device": "tpu"}, "device: expected cpu, got tpu"),
    ("Hold", HOLD | {"device": "x" * 65}, "device: "),
    ("Hold", {"device": "cpu"}, "size_bytes: expected a whole number from 1"),
    ("Hold", HOLD | {"size_bytes": 2**53 + 1}, "size_bytes: "),
    ("Hold", HOLD | {"priority": 6}, "priority: expected a whole number from 1 to 5, or 0 for 3, got 6"),
    ("Hold", HOLD | {"max_wait_ms": 3_600_001}, "max_wait_ms: "),
]


@pytest.mark.parametrize(
    ("method", "fields", "says"), WRONG, ids=[f"{method} {says[:20]}" for method, _, says in WRONG]
)
@on_loop
async def test_a_wrong_field_is_named(method: str, fields: dict[str, Any], says: str) -> None:
    async with connected(backend()) as channel:
        if method in ("Hold", "WatchSnapshot"):
            request = pb.HoldRequest(**fields) if method == "Hold" else pb.WatchSnapshotRequest(**fields)
            error = await failure(stream(channel, method, request).read())
        elif method == "Explain":
            error = await failure(ask(channel, method, pb.ExplainRequest(**fields)))
        elif method == "GetRunEstimates":
            error = await failure(ask(channel, method, pb.GetRunEstimatesRequest(**fields)))
        else:
            error = await failure(ask(channel, method, pb.SetModelPolicyRequest(**fields)))
    assert error.code() is Code.INVALID_ARGUMENT
    assert str(error.details()).startswith(says)


@pytest.mark.parametrize(("name", "version", "code"), [
    ("other", "", Code.NOT_FOUND), ("echo", "2", Code.NOT_FOUND), ("broken", "", Code.UNAVAILABLE),
])  # fmt: skip
@on_loop
async def test_models_that_are_not_there(name: str, version: str, code: grpc.StatusCode) -> None:
    async with connected(backend()) as channel:
        policy = pb.SetModelPolicyRequest(model_name=name, model_version=version, pinned=True)
        assert (await failure(ask(channel, "SetModelPolicy", policy))).code() is code
        question = pb.ExplainRequest(model_name=name, model_version=version, rows=1)
        assert (await failure(ask(channel, "Explain", question))).code() is code
        known = pb.GetRunEstimatesRequest(model_name=name, model_version=version)
        assert (await failure(ask(channel, "GetRunEstimates", known))).code() is code


@on_loop
async def test_what_does_not_parse_or_is_unheard_of_ends_in_a_status() -> None:
    async with connected(backend()) as channel:
        for method in ("GetSnapshot", "Explain", "SetModelPolicy", "GetRunEstimates"):
            raw: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
                f"/moorage.v1.AdminService/{method}"
            )
            assert (await failure(raw(b"\xff\xff"))).code() is Code.INVALID_ARGUMENT
        for method in ("WatchSnapshot", "Hold"):
            many: grpc.aio.UnaryStreamMultiCallable[bytes, bytes] = channel.unary_stream(
                f"/moorage.v1.AdminService/{method}"
            )
            assert (await failure(many(b"\xff\xff").read())).code() is Code.INVALID_ARGUMENT
