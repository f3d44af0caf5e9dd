"""BatchService over the wire."""

import asyncio
from pathlib import Path

import grpc

from moorage.rpc.listener import Listener, ListenerSettings
from moorage_protocol import moorage_v1 as pb
from tests.unit.rpc.batch_calls import HEADER, Code, code_of, events, items, method, of_kind, opened, serving
from tests.unit.rpc.running import batches_of, on_loop
from tests.unit.rpc.test_listener import echoing


@on_loop
async def test_a_batch_from_its_header_to_its_summary() -> None:
    async with serving(echoing()) as channel:
        call = await opened(channel)
        for begin in range(0, 100, 25):
            await call.write(items(begin, begin + 25))
        await call.done_writing()
        found = await events(call)
        assert await call.read() is grpc.aio.EOF
        assert await call.code() is Code.OK
    assert found[0].opened.batch.state == pb.BATCH_STATE_RUNNING
    assert found[0].opened.credit_items == 1024
    results = of_kind(found, "result")
    assert sorted(result.item_id for result in results) == sorted(f"item-{number}" for number in range(100))
    for result in results:
        (answer,) = result.responses
        assert answer.id == result.item_id
        assert answer.raw_output_contents[0][0] == int(result.item_id.removeprefix("item-"))
    assert [event.sequence for event in found if event.HasField("result")] == list(range(1, 101))
    assert of_kind(found, "acknowledged")[-1].items == 100
    summary = found[-1]
    assert summary.sequence == 101
    assert summary.summary.batch.state == pb.BATCH_STATE_DONE
    assert summary.summary.batch.counts.succeeded == summary.summary.batch.counts.received == 100


@on_loop
async def test_items_may_come_with_the_header_and_errors_are_statuses() -> None:
    async with serving(echoing()) as channel:
        call = method(channel, "Submit")()
        first = items(0, 2)
        first.header.CopyFrom(HEADER)
        first.items.items[1].raw_input_contents[0] = b"too short"
        await call.write(first)
        await call.done_writing()
        found = await events(call)
    (error,) = of_kind(found, "error")
    assert (error.item_id, error.status.code) == ("item-1", Code.INVALID_ARGUMENT.value[0])
    assert "'x'" in error.status.message
    assert found[-1].summary.batch.counts.failed == 1


@on_loop
async def test_another_call_goes_on_after_what_was_seen_and_the_older_one_ends() -> None:
    async with serving(echoing()) as channel:
        older = await opened(channel)
        await older.write(items(0, 10))
        seen = await events(older, until="result")
        last = max(event.sequence for event in seen)
        newer = await opened(channel, after=last)
        assert await code_of(events(older)) is Code.ABORTED
        await newer.write(items(5, 20))
        await newer.done_writing()
        found = await events(newer)
    assert [event.sequence for event in found if event.HasField("result")] == list(range(last + 1, 21))
    assert of_kind(found, "acknowledged")[-1].duplicates == 5


@on_loop
async def test_a_call_that_breaks_off_leaves_the_batch_to_who_comes_back_and_to_who_attaches() -> None:
    async with serving(echoing()) as channel:
        call = await opened(channel)
        await call.write(items(0, 10))
        await events(call, until="result")
        call.cancel()
        attached = method(channel, "Attach")(pb.AttachRequest(batch_id="nightly"))
        again = await opened(channel)
        await again.done_writing()
        for found in (await events(attached), await events(again)):
            assert len(of_kind(found, "result")) == 10
            assert found[-1].summary.batch.complete


@on_loop
async def test_another_header_of_the_same_id_is_refused() -> None:
    async with serving(echoing()) as channel:
        call = await opened(channel)
        await events(call, until="opened")
        other = pb.BatchHeader(batch_id="nightly", model_name="echo", ordered=True)
        assert await code_of(events(await opened(channel, other))) is Code.ALREADY_EXISTS


@on_loop
async def test_get_list_cancel_and_delete() -> None:
    async with serving(echoing()) as channel:
        call = await opened(channel, pb.BatchHeader(batch_id="nightly", model_name="echo", labels={"team": "ads"}))
        await events(call, until="opened")
        get, cancel, delete = (method(channel, name) for name in ("Get", "Cancel", "Delete"))
        batch = (await get(pb.GetRequest(batch_id="nightly"))).batch
        assert (batch.header.priority, batch.header.timeout_ms, batch.header.retry.attempts) == (5, 86_400_000, 3)
        assert await code_of(delete(pb.DeleteRequest(batch_id="nightly"))) is Code.FAILED_PRECONDITION
        assert (await cancel(pb.CancelRequest(batch_id="nightly"))).batch.state == pb.BATCH_STATE_CANCELLED
        assert (await events(call))[-1].summary.batch.state == pb.BATCH_STATE_CANCELLED
        listed = await method(channel, "List")(pb.ListRequest(labels={"team": "ads"}))
        assert [batch.header.batch_id for batch in listed.batches] == ["nightly"]
        assert not (await method(channel, "List")(pb.ListRequest(labels={"team": "search"}))).batches
        await delete(pb.DeleteRequest(batch_id="nightly"))
        for request in (get(pb.GetRequest(batch_id="nightly")), cancel(pb.CancelRequest(batch_id="nightly"))):
            assert await code_of(request) is Code.NOT_FOUND


@on_loop
async def test_a_list_comes_in_pages() -> None:
    async with serving(echoing()) as channel:
        for number in range(5):
            await events(
                await opened(channel, pb.BatchHeader(batch_id=f"b{number}", model_name="echo")), until="opened"
            )
        request, names = pb.ListRequest(limit=2), []
        while True:
            page = await method(channel, "List")(request)
            names += [batch.header.batch_id for batch in page.batches]
            if not page.next_page_token:
                break
            request.page_token = page.next_page_token
        assert names == ["b4", "b3", "b2", "b1", "b0"]


@on_loop
async def test_states_of_items_are_told_to_who_asks() -> None:
    async with serving(echoing()) as channel:
        call = await opened(channel, pb.BatchHeader(batch_id="nightly", model_name="echo", item_states=True))
        await call.write(items(0, 5))
        await call.done_writing()
        states = of_kind(await events(call), "item_state")
    assert [(state.item_id, state.state) for state in states] == [
        (f"item-{number}", pb.ITEM_STATE_RUNNING) for number in range(5)
    ]


@on_loop
async def test_a_server_that_stops_ends_the_calls(tmp_path: Path) -> None:
    backend = echoing()
    backend.gate = asyncio.Event()
    batches = batches_of(backend)
    listener = Listener(backend, ListenerSettings("127.0.0.1:0", "0.0.0"), batches)
    async with grpc.aio.insecure_channel(await listener.start()) as channel:
        call = await opened(channel)
        await call.write(items(0, 5))
        await backend.entered.wait()
        stopping = asyncio.create_task(listener.stop(20.0))
        assert await code_of(events(call)) is Code.UNAVAILABLE
        await asyncio.wait_for(stopping, 5.0)
        await batches.close()
