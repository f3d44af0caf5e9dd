"""A real server on a free port, called over the wire."""

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc.aio as triton
from google.rpc import error_details_pb2 as details
from grpc_status import rpc_status

from moorage.domain.errors import InferenceFailed, ModelTooLarge, QueueFull
from moorage.domain.tensor import TensorSpec
from moorage.rpc.listener import Listener, ListenerSettings
from moorage_protocol import inference as pb
from moorage_protocol.services import INFERENCE_METHODS
from tests.unit.rpc.echo_backend import EchoBackend, echo_spec, served
from tests.unit.rpc.messages import raw_request, typed_request
from tests.unit.rpc.running import batches_of, call, connected, listening, on_loop

Code = grpc.StatusCode

FLAT = echo_spec("echo", TensorSpec("x", "FP32", [-1]), max_batch_size=8)
ANY = echo_spec("any", TensorSpec("x", "FP32", [-1, -1]))
WORDS = echo_spec("words", TensorSpec("x", "BYTES", [-1]))
SCALAR = echo_spec("scalar", TensorSpec("x", "FP32", []))
GOOD = raw_request("echo", ("x", "FP32", [1, 2], bytes(8)))


def echoing() -> EchoBackend:
    return EchoBackend(*(served(spec) for spec in (FLAT, ANY, WORDS, SCALAR)))


@asynccontextmanager
async def triton_client(backend: EchoBackend) -> AsyncIterator[Any]:
    async with listening(backend) as address, triton.InferenceServerClient(address) as client:
        yield client


async def failure(channel: "grpc.aio.Channel", method: str, request: Any, **options: Any) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call(channel, method, request, **options)
    return caught.value


@on_loop
async def test_triton_s_client_infers() -> None:
    backend = echoing()
    async with triton_client(backend) as client:
        sent = np.arange(6, dtype=np.float32).reshape(2, 3)
        given = triton.InferInput("x", sent.shape, "FP32")
        given.set_data_from_numpy(sent)
        result = await client.infer("echo", [given], request_id="r-1", priority=2, timeout=5_000_000)
        assert (result.as_numpy("x") == sent).all()
        assert (result.get_response().id, result.get_response().model_version) == ("r-1", "1")

        text = np.array([b"", "gr\u00fc\u00df".encode()], dtype=np.object_)
        given = triton.InferInput("x", text.shape, "BYTES")
        given.set_data_from_numpy(text)
        result = await client.infer("words", [given], outputs=[triton.InferRequestedOutput("x")])
        assert result.as_numpy("x").tolist() == text.tolist()
    first = backend.requests[0]
    assert (first.priority, first.rows, first.client_id) == (2, 2, "r-1")
    assert first.deadline_s - first.arrived_s <= 5.0


@on_loop
async def test_half_precision_is_bit_identical() -> None:
    specs = [echo_spec(name.lower(), TensorSpec("x", name, [-1])) for name in ("FP16", "BF16")]
    bits = struct.pack("<6H", 0x3C00, 0x8000, 0x0001, 0x7C00, 0x7E2A, 0x7BFF)
    async with connected(EchoBackend(*map(served, specs))) as channel:
        for spec in specs:
            datatype = spec.inputs[0].datatype.value
            answer = await call(channel, "ModelInfer", raw_request(spec.name, ("x", datatype, [6], bits)))
            assert list(answer.raw_output_contents) == [bits]


@pytest.mark.parametrize(
    ("model", "datatype", "shape"),
    [("any", "FP32", [0, 3]), ("any", "FP32", [2, 0]), ("echo", "FP32", [1, 0]), ("words", "BYTES", [0])],
)
@on_loop
async def test_empty_tensors_come_back_in_both_encodings(model: str, datatype: str, shape: list[int]) -> None:
    async with connected(echoing()) as channel:
        raw = await call(channel, "ModelInfer", raw_request(model, ("x", datatype, shape, b"")))
        typed = await call(channel, "ModelInfer", typed_request(model, ("x", datatype, shape, {})))
    assert list(raw.outputs[0].shape) == list(typed.outputs[0].shape) == shape
    assert list(raw.raw_output_contents) == [b""]
    assert list(typed.raw_output_contents) == []


@on_loop
async def test_scalars() -> None:
    async with connected(echoing()) as channel:
        answer = await call(channel, "ModelInfer", raw_request("scalar", ("x", "FP32", [], b"abcd")))
    assert list(answer.outputs[0].shape) == []
    assert list(answer.raw_output_contents) == [b"abcd"]


@on_loop
async def test_hostile_shapes_cost_only_their_sender() -> None:
    cases: list[tuple[str, list[int], bytes]] = [
        ("any", [-1, 4], bytes(16)), ("any", [-1, -4], bytes(16)), ("any", [2**32, 2**32], b""),
        ("any", [2**62, 4], b""), ("any", [0, 2**62], b""), ("echo", [1, 2**63 - 1], bytes(4)),
        ("any", [1] * 1000, bytes(4)), ("any", [1, 4], bytes(15)), ("any", [1, 4], bytes(17)),
        ("echo", [0, 2], b""), ("echo", [9, 2], bytes(72)),
    ]  # fmt: skip
    async with connected(echoing()) as channel:
        for model, shape, data in cases:
            error = await failure(channel, "ModelInfer", raw_request(model, ("x", "FP32", shape, data)))
            assert error.code() is Code.INVALID_ARGUMENT
            assert "input 'x'" in str(error.details())
        assert await call(channel, "ModelInfer", GOOD)


@on_loop
async def test_failures_carry_their_figures() -> None:
    backend = echoing()
    async with connected(backend) as channel:
        backend.failure = QueueFull("echo", unit="rows", waiting=9, asked=2, limit=10, retry_after_s=0.25)
        error = await failure(channel, "ModelInfer", GOOD)
        assert error.code() is Code.RESOURCE_EXHAUSTED
        assert ("grpc-retry-pushback-ms", "250") in [*error.trailing_metadata()]
        status = rpc_status.from_call(_Finished(error))
        kinds = [packed.TypeName() for packed in status.details]
        assert kinds == [f"google.rpc.{kind}" for kind in ("ErrorInfo", "RetryInfo", "QuotaFailure")]
        info = details.ErrorInfo()
        status.details[0].Unpack(info)
        assert info.metadata["limit"] == "10"

        backend.failure = ModelTooLarge("model 'echo'", device="cpu", needed_bytes=7, capacity_bytes=3)
        assert (await failure(channel, "ModelInfer", GOOD)).code() is Code.FAILED_PRECONDITION
        backend.failure = InferenceFailed("echo", "abc", "secret")
        error = await failure(channel, "ModelInfer", GOOD)
        assert (error.code(), "secret" in str(error)) == (Code.INTERNAL, False)


class _Finished:
    """An error as grpc_status wants to see a call."""

    def __init__(self, error: grpc.aio.AioRpcError) -> None:
        self.trailing_metadata = error.trailing_metadata
        self.code = error.code
        self.details = error.details


@on_loop
async def test_unknown_models_and_versions() -> None:
    async with connected(echoing()) as channel:
        error = await failure(channel, "ModelInfer", raw_request("other", ("x", "FP32", [1], bytes(4))))
        assert (error.code(), error.details()) == (
            Code.NOT_FOUND,
            "Request for unknown model: 'other' is not found",
        )
        error = await failure(channel, "ModelInfer", pb.ModelInferRequest(model_name="echo", model_version="7"))
        assert error.code() is Code.NOT_FOUND
        error = await failure(channel, "ModelInfer", pb.ModelInferRequest(model_name="../echo"))
        assert error.code() is Code.INVALID_ARGUMENT


def test_unknown_exceptions_are_hidden_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    @on_loop
    async def scenario() -> None:
        backend = echoing()
        async with connected(backend) as channel:
            for failure_ in (ValueError("secret detail"), asyncio.CancelledError("nobody cancelled this")):
                backend.failure = failure_
                error = await failure(channel, "ModelInfer", GOOD, timeout=10.0)
                assert error.code() is Code.INTERNAL
                text = str(error.details())
                assert text.startswith("internal error, id=")
                assert text.removeprefix("internal error, ") in caplog.text
            backend.failure = None
            assert await call(channel, "ModelInfer", GOOD)

    scenario()
    assert "secret detail" in caplog.text


@on_loop
async def test_cancelling_a_call_cancels_its_request() -> None:
    backend = echoing()
    backend.gate = asyncio.Event()
    async with connected(backend) as channel:
        waiting = asyncio.ensure_future(call(channel, "ModelInfer", GOOD))
        await backend.entered.wait()
        waiting.cancel()
        await asyncio.wait_for(backend.cancelled.wait(), 10.0)


@on_loop
async def test_a_client_s_deadline_counts() -> None:
    backend = echoing()
    async with connected(backend) as channel:
        await call(channel, "ModelInfer", GOOD, timeout=3.0, metadata=(("priority", "5"),))
    request = backend.requests[0]
    assert 0 < request.deadline_s - request.arrived_s < 3.5  # gRPC rounds timeouts on the wire
    assert request.priority == 5


@on_loop
async def test_what_does_not_parse_is_the_caller_s_fault() -> None:
    async with connected(echoing()) as channel:
        for method in ("ModelInfer", "ModelReady"):
            stub: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(INFERENCE_METHODS[method].path)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stub(b"\xff\xff\xff")
            assert caught.value.code() is Code.INVALID_ARGUMENT


@on_loop
async def test_messages_over_the_limit() -> None:
    async with (
        listening(echoing(), max_receive_bytes=1024 * 1024) as address,
        grpc.aio.insecure_channel(address) as channel,
    ):
        large = raw_request("echo", ("x", "FP32", [1, 300_000], bytes(1_200_000)))
        assert (await failure(channel, "ModelInfer", large)).code() is Code.RESOURCE_EXHAUSTED
        fits = raw_request("echo", ("x", "FP32", [1, 200_000], bytes(800_000)))
        assert await call(channel, "ModelInfer", fits)


@on_loop
async def test_shared_memory_has_nothing_to_tell() -> None:
    async with triton_client(echoing()) as client:
        assert not (await client.get_system_shared_memory_status()).regions
        assert not (await client.get_cuda_shared_memory_status()).regions
        await client.unregister_system_shared_memory()
        await client.unregister_cuda_shared_memory("any")
        for attempt in (
            client.register_system_shared_memory("region", "/key", 64),
            client.register_cuda_shared_memory("region", b"aGFuZGxl", 0, 64),
            client.get_trace_settings(),
            client.update_log_settings({"log_verbose_level": 1}),
        ):
            with pytest.raises(triton.InferenceServerException, match=r"UNIMPLEMENTED.*extension"):
                await attempt


@on_loop
async def test_every_method_is_served() -> None:
    async with connected(echoing()) as channel:
        for name, method in INFERENCE_METHODS.items():
            if method.client_streaming:
                continue
            try:
                await call(channel, name, method.request())
            except grpc.aio.AioRpcError as error:
                assert error.code() in (Code.INVALID_ARGUMENT, Code.UNIMPLEMENTED)  # noqa: PT017
                assert "Method not found" not in str(error.details())  # noqa: PT017


@on_loop
async def test_stopping_lets_calls_finish_and_does_not_wait_for_watchers() -> None:
    backend = echoing()
    backend.gate = asyncio.Event()
    listener = Listener(backend, ListenerSettings("127.0.0.1:0", "0.0.0"), batches_of(backend))
    address = await listener.start()
    async with grpc.aio.insecure_channel(address) as channel:
        answer = asyncio.ensure_future(call(channel, "ModelInfer", GOOD))
        watching: grpc.aio.UnaryStreamMultiCallable[bytes, bytes] = channel.unary_stream("/grpc.health.v1.Health/Watch")
        reflecting: grpc.aio.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(
            "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
        )
        watch, reflect = watching(b""), reflecting()
        await reflect.write(b"\x3a\x00")
        assert await watch.read()
        assert await reflect.read()
        await backend.entered.wait()
        stopping = asyncio.ensure_future(listener.stop(grace_s=30.0))
        await asyncio.sleep(0)
        backend.gate.set()
        assert await answer
        await asyncio.wait_for(stopping, 10.0)


@on_loop
async def test_an_address_that_is_taken() -> None:
    async with listening(echoing()) as address:
        backend = echoing()
        second = Listener(backend, ListenerSettings(address, "0.0.0"), batches_of(backend))
        with pytest.raises(OSError, match=address):
            await second.start()
        await second.stop(0)
