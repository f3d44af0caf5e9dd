"""Both clients' part in the admin service, against a real server."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from moorage_client import (
    BrokenModel,
    Cancelled,
    Client,
    DeviceStatus,
    Explanation,
    Holder,
    InvalidRequest,
    ModelPolicy,
    ModelStatus,
    NotSupported,
    Overloaded,
    ResidencyCounts,
    RunEstimate,
    Snapshot,
    SyncClient,
    Unavailable,
)
from moorage_protocol import moorage_v1 as pb
from tests.support.in_a_loop import with_client
from tests.support.polling import eventually
from tests.support.protocol_server import Behaviour


@pytest.fixture
def administered(server: Behaviour) -> Behaviour:
    server.administration.is_there = True
    return server


def full_snapshot() -> pb.Snapshot:
    snapshot = pb.Snapshot(ready=True, draining=False)
    snapshot.models.add(
        name="mlp", version="2", state=pb.MODEL_STATE_OFFLOADED, ready=True, reason="evicted", device="cuda:0",
        leased_bytes={"workspace": 1, "weights": 2}, host_bytes=3, waiting_rows=4, running_requests=5,
        policy=pb.ModelPolicy(priority=1, reserved_bytes=6, limit_bytes=7, pinned=True),
        residency_counts=pb.ResidencyCounts(loads=8, evictions=9, restores=10, preemptions=11),
    )  # fmt: skip
    snapshot.broken_models.add(name="bad", reason="no weights")
    snapshot.devices.add(
        name="cuda:0", capacity_bytes=1, configured_bytes=2, leased_bytes={"held": 3}, host_capacity_bytes=4,
        host_leased_bytes=5, run_slots=6, running_runs=7, waiting=8,
    )  # fmt: skip
    return snapshot


FULL = Snapshot(
    ready=True,
    draining=False,
    models=(
        ModelStatus(
            "mlp", "2", "offloaded", ready=True, reason="evicted", device="cuda:0",
            leased_bytes={"weights": 2, "workspace": 1}, host_bytes=3,
            policy=ModelPolicy(1, 6, 7, pinned=True), waiting_rows=4, running_requests=5,
            residency_counts=ResidencyCounts(8, 9, 10, 11),
        ),
    ),
    broken_models=(BrokenModel("bad", "no weights"),),
    devices=(DeviceStatus("cuda:0", 1, 2, {"held": 3}, 4, 5, 6, 7, 8),),
)  # fmt: skip


def test_a_snapshot_is_told_whole(administered: Behaviour) -> None:
    administered.administration.snapshots = [full_snapshot()]
    assert with_client(administered, lambda client: client.snapshot()) == FULL
    with SyncClient(administered.target) as client:
        assert client.snapshot() == FULL


def test_a_state_of_a_later_day_is_unknown(administered: Behaviour) -> None:
    snapshot = pb.Snapshot()
    snapshot.models.add(name="mlp").state = 99  # type: ignore[assignment]
    administered.administration.snapshots = [snapshot]
    with SyncClient(administered.target) as client:
        (model,) = client.snapshot().models
    assert (model.state, model.policy.limit_bytes) == ("unknown", None)


def test_both_clients_watch_until_the_server_ends_it(administered: Behaviour) -> None:
    administered.administration.snapshots = [pb.Snapshot(ready=ready) for ready in (False, True, False)]

    async def watch(client: Client) -> list[bool]:
        return [snapshot.ready async for snapshot in client.watch(interval_s=0.25)]

    assert with_client(administered, watch) == [False, True, False]
    with SyncClient(administered.target) as client:
        assert [snapshot.ready for snapshot in client.watch()] == [False, True, False]
    assert [request.interval_ms for request in administered.administration.requests] == [250, 1000]


def test_a_policy_is_sent_where_it_is_given(administered: Behaviour) -> None:
    administered.administration.policy = pb.ModelPolicy(priority=2, reserved_bytes=5, pinned=True)

    async def change(client: Client) -> ModelPolicy:
        return await client.set_policy("mlp", priority=2, no_limit=True)

    assert with_client(administered, change) == ModelPolicy(2, 5, None, pinned=True)
    with SyncClient(administered.target) as client:
        client.set_policy("mlp", version="2", reserved_bytes=0, limit_bytes=9, pinned=False)
    first, second = administered.administration.requests
    assert first == pb.SetModelPolicyRequest(model_name="mlp", priority=2, no_limit=True)
    expected = pb.SetModelPolicyRequest(model_name="mlp", model_version="2", limit_bytes=9)
    expected.reserved_bytes, expected.pinned = 0, False  # there, though zero
    assert second == expected


def test_an_explanation_is_told_whole(administered: Behaviour) -> None:
    holder = pb.Holder(owner="vad/1", kind="weights", size_bytes=7, priority=5)
    administered.administration.explanation = pb.ExplainResponse(
        model_name="mlp", model_version="1", verdict=pb.VERDICT_EVICT, device="cpu", rows=4, priority=3,
        needed_bytes=9, free_bytes=2, missing_bytes=0, evict=[holder], preempt=[], holders=[holder], reason="because",
    )  # fmt: skip
    told = Holder("vad/1", "weights", 7, 5)
    expected = Explanation("mlp", "1", "evict", "cpu", 4, 3, 9, 2, 0, (told,), (), (told,), "because")
    assert with_client(administered, lambda client: client.explain("mlp", 4)) == expected
    with SyncClient(administered.target) as client:
        assert client.explain("mlp", 4, priority=2, version="1") == expected
    assert [(request.rows, request.priority) for request in administered.administration.requests] == [(4, 0), (4, 2)]


def test_estimates_are_told_with_what_is_not_known_left_out(administered: Behaviour) -> None:
    whole = pb.RunEstimate(
        rows=4, row_bytes=63, leased_bytes=11, expected_bytes=10, measured_bytes=0, bytes_error=-0.5, measured_runs=2,
        expected_s=0.25, seconds_error=0.0,
    )  # fmt: skip
    administered.administration.estimates.estimates.extend([whole, pb.RunEstimate(rows=1, leased_bytes=5)])
    expected = (
        RunEstimate(4, 63, 11, 10, 0, -0.5, 2, 0.25, 0.0),
        RunEstimate(1, 0, 5, None, None, None, 0, None, None),
    )
    assert with_client(administered, lambda client: client.run_estimates("mlp")) == expected
    with SyncClient(administered.target) as client:
        assert client.run_estimates("mlp", version="2") == expected
    asked = [pb.GetRunEstimatesRequest(model_name="mlp", model_version=version) for version in ("", "2")]
    assert administered.administration.requests == asked


def test_leaving_an_aio_hold_gives_back(administered: Behaviour) -> None:
    held = administered.administration.held

    async def use(client: Client) -> None:
        async with client.hold("cuda:0", 2**30, priority=1, max_wait_s=5.0) as hold:
            assert (hold.device, hold.size_bytes) == ("cuda:0", 2**30)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(hold.wait_until_lost(), 0.1)
            assert held == [pb.HoldRequest(device="cuda:0", size_bytes=2**30, priority=1, max_wait_ms=5000)]

    with_client(administered, use)
    eventually(lambda: not held, what="the hold has ended")


def test_leaving_a_sync_hold_gives_back(administered: Behaviour) -> None:
    held = administered.administration.held
    with SyncClient(administered.target) as client:
        with client.hold("cpu", 1) as hold:
            assert (hold.size_bytes, len(held)) == (1, 1)
        eventually(lambda: not held, what="the hold has ended")
        with pytest.raises(KeyError), client.hold("cpu", 1):
            raise KeyError
        eventually(lambda: not held, what="the hold has ended")


def test_a_hold_that_is_lost_says_why(administered: Behaviour) -> None:
    async def use(client: Client) -> None:
        async with client.hold("cpu", 1) as hold:
            administered.administration.lost.set()
            error = await hold.wait_until_lost()
        assert isinstance(error, Unavailable)
        assert error.message == "the server is shutting down"

    with_client(administered, use)
    with SyncClient(administered.target) as client, client.hold("cpu", 1) as hold:
        assert isinstance(hold.wait_until_lost(), Unavailable)


def test_closing_a_client_ends_its_streams(administered: Behaviour) -> None:
    async def use(client: Client) -> None:
        async with client.hold("cpu", 1) as hold:
            await client.close()
            assert isinstance(await hold.wait_until_lost(), Cancelled)
        with pytest.raises(Cancelled):
            async with client.hold("cpu", 1):
                pass

    with_client(administered, use)
    client = SyncClient(administered.target)
    waiting = threading.Event()

    def wait() -> object:
        with client.hold("cpu", 1) as hold:
            waiting.set()
            return hold.wait_until_lost()

    with ThreadPoolExecutor(1) as thread:
        lost = thread.submit(wait)
        assert waiting.wait(10)
        client.close()
        assert isinstance(lost.result(timeout=10), Cancelled)
    with pytest.raises(Cancelled), client.hold("cpu", 1):
        pass


def test_a_refusal_has_its_figures(administered: Behaviour, memory_details: bytes) -> None:
    metadata = (("grpc-status-details-bin", memory_details), ("grpc-retry-pushback-ms", "20"))
    administered.administration.refusal = (grpc.StatusCode.RESOURCE_EXHAUSTED, "not now", metadata)
    with SyncClient(administered.target) as client, pytest.raises(Overloaded) as caught:
        client.set_policy("mlp", reserved_bytes=7)
    error = caught.value
    assert (error.reason, error.retry_after_s) == ("MEMORY_EXHAUSTED", 0.02)
    assert (error.details["bytes_needed"], error.details["bytes_free"]) == ("7", "3")
    assert error.held_by == (Holder("vad/1", "weights", 90), Holder("cuda:0", "context", 10))
    with pytest.raises(Overloaded, match="not now"):
        with_client(administered, _hold_once)


async def _hold_once(client: Client) -> None:
    async with client.hold("cpu", 1):
        pass


def test_other_servers_do_not_have_it(server: Behaviour) -> None:
    with SyncClient(server.target) as client:
        with pytest.raises(NotSupported):
            client.snapshot()
        with pytest.raises(NotSupported):
            next(iter(client.watch()))


def _hold(client: SyncClient, **options: Any) -> None:
    with client.hold("cpu", **options):
        pass


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (lambda client: next(iter(client.watch(0))), "interval_s: expected seconds above 0, got 0"),
        (lambda client: client.explain("m", -1), "rows: "),
        (lambda client: client.explain("m", 1, priority=-1), "priority: "),
        (lambda client: client.set_policy("m", limit_bytes=1, no_limit=True), "limit_bytes: "),
        (lambda client: client.set_policy("m", reserved_bytes=2**64), "reserved_bytes: "),
        (lambda client: client.set_policy("m", priority=-1), "priority: "),
        (lambda client: _hold(client, size_bytes=-1), "size_bytes: "),
        (lambda client: _hold(client, size_bytes=1, max_wait_s=float("nan")), "max_wait_s: "),
    ],
)
def test_what_cannot_be_sent_is_refused_here(
    administered: Behaviour, ask: Callable[[SyncClient], object], says: str
) -> None:
    with SyncClient(administered.target) as client, pytest.raises(InvalidRequest, match=says):
        ask(client)
    assert administered.administration.requests == []
