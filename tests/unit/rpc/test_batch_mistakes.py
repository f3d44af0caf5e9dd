"""What may be wrong with calls of BatchService, and how it is told."""

from typing import Any

import grpc
import pytest
from google.protobuf.message import Message

from moorage_protocol import moorage_v1 as pb
from moorage_protocol.services import BATCH_METHODS
from tests.unit.rpc.batch_calls import HEADER, Code, code_of, events, items, method, opened, serving, text_of
from tests.unit.rpc.running import on_loop
from tests.unit.rpc.test_listener import echoing


@pytest.mark.parametrize(
    ("field", "header"),
    [
        ("batch_id", {"batch_id": "a b"}),
        ("batch_id", {"batch_id": ""}),
        ("batch_id", {"batch_id": "x" * 129}),
        ("model_version", {"model_version": "x"}),
        ("priority", {"priority": 6}),
        ("timeout_ms", {"timeout_ms": 2**60}),
        ("result_ttl_ms", {"result_ttl_ms": 2**60}),
        ("retry.attempts", {"retry": pb.BatchRetry(attempts=101)}),
        ("retry.codes", {"retry": pb.BatchRetry(codes=["SOMETIMES"])}),
        ("retry.max_backoff_ms", {"retry": pb.BatchRetry(max_backoff_ms=2**32 - 1)}),
        ("labels", {"labels": {str(number): "x" for number in range(65)}}),
        ("labels", {"labels": {"x": "y" * 5000}}),
    ],
)
@on_loop
async def test_what_is_wrong_with_a_header_is_named(field: str, header: dict[str, Any]) -> None:
    async with serving(echoing()) as channel:
        whole = pb.BatchHeader(**{"batch_id": "nightly", "model_name": "echo"} | header)
        assert (await text_of(events(await opened(channel, whole)))).startswith(f"{field}: ")


@pytest.mark.parametrize(
    ("name", "request_message", "field"),
    [
        ("Get", pb.GetRequest(batch_id="a/b"), "batch_id"),
        ("List", pb.ListRequest(limit=1001), "limit"),
        ("List", pb.ListRequest(page_token="yesterday"), "page_token"),
    ],
)
@on_loop
async def test_what_is_wrong_with_a_question_is_named(name: str, request_message: Message, field: str) -> None:
    async with serving(echoing()) as channel:
        assert (await text_of(method(channel, name)(request_message))).startswith(f"{field}: ")


async def to_the_end(call: Any) -> None:
    while await call.read() is not grpc.aio.EOF:
        pass


@on_loop
async def test_what_is_wrong_with_a_message_ends_the_call() -> None:
    async with serving(echoing()) as channel:
        raw: Any = channel.stream_stream(BATCH_METHODS["Submit"].path)
        header = pb.SubmitRequest(header=HEADER).SerializeToString()
        for first, then, field in (
            (b"\xff\xff", b"", "request: "),
            (items(0, 1).SerializeToString(), b"", "header: "),
            (header, b"\xff\xff", "request: "),
            (header, b"\x12\x00", "items: "),
        ):
            call = raw()
            await call.write(first)
            if then:
                await call.write(then)
            assert (await text_of(to_the_end(call))).startswith(field)
        unknown = await opened(channel, pb.BatchHeader(batch_id="a", model_name="nothing"))
        assert await code_of(events(unknown)) is Code.NOT_FOUND
        attached = method(channel, "Attach")(pb.AttachRequest(batch_id="nightly", after_sequence=5))
        assert (await text_of(attached.read())).startswith("after_sequence: ")


@on_loop
async def test_without_a_store_there_are_no_durable_batches() -> None:
    async with serving(echoing()) as channel:
        durable = pb.BatchHeader(batch_id="nightly", model_name="echo", durable=True)
        assert await code_of(events(await opened(channel, durable))) is Code.UNIMPLEMENTED
