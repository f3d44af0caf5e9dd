from typing import TYPE_CHECKING, Any

import grpc
import pytest
from google.protobuf import descriptor_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2

from moorage.domain.tensor import TensorSpec
from moorage.engine.snapshot import BrokenModel, ServerSnapshot
from tests.unit.rpc.echo_backend import EchoBackend, echo_spec, served
from tests.unit.rpc.running import connected, on_loop

if TYPE_CHECKING:
    Channel = grpc.aio.Channel

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
SERVICES = ("inference.GRPCInferenceService", "moorage.v1.AdminService", "grpc.health.v1.Health")
SERVICE_UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


def backend() -> EchoBackend:
    return EchoBackend(served(echo_spec("echo", TensorSpec("x", "FP32", [1]))), broken=(BrokenModel("broken", "why"),))


async def check(channel: "grpc.aio.Channel", service: str) -> Any:
    response = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service=service))
    return response.status


@on_loop
async def test_check() -> None:
    engine = backend()
    async with connected(engine) as channel:
        for service in ("", "inference.GRPCInferenceService", "echo"):
            assert await check(channel, service) == SERVING
        assert await check(channel, "broken") == NOT_SERVING
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await check(channel, "unheard-of")
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND
        engine.draining = True
        for service in ("", "inference.GRPCInferenceService", "echo"):
            assert await check(channel, service) == NOT_SERVING


@on_loop
async def test_watch_tells_each_change_once() -> None:
    engine = backend()
    async with connected(engine) as channel:
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service="echo"))
        assert (await watch.read()).status == SERVING
        engine.notify()
        await engine.unload("echo")
        assert (await watch.read()).status == NOT_SERVING
        await engine.load("echo")
        assert (await watch.read()).status == SERVING
        model = engine.models.pop("echo")
        engine.notify()
        assert (await watch.read()).status == SERVICE_UNKNOWN
        engine.models["echo"] = model
        engine.notify()
        assert (await watch.read()).status == SERVING
        engine.draining = True
        engine.notify()
        assert (await watch.read()).status == NOT_SERVING
        watch.cancel()


@on_loop
async def test_a_change_costs_one_snapshot_for_all_watchers(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = backend()
    taken = 0
    snapshot = engine.snapshot

    def counted() -> ServerSnapshot:
        nonlocal taken
        taken += 1
        return snapshot()

    monkeypatch.setattr(engine, "snapshot", counted)
    async with connected(engine) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        watches = [stub.Watch(health_pb2.HealthCheckRequest(service=name)) for name in ("echo", "", "broken") * 10]
        first = [(await watch.read()).status for watch in watches]
        assert first == [SERVING, SERVING, NOT_SERVING] * 10
        before = taken
        await engine.unload("echo")
        assert [(await watch.read()).status for watch in watches[::3]] == [NOT_SERVING] * 10
        assert taken == before + 1
        assert await check(channel, "echo") == NOT_SERVING
        assert taken == before + 2


@on_loop
async def test_a_service_that_may_come_can_be_watched() -> None:
    async with connected(backend()) as channel:
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service="later"))
        assert (await watch.read()).status == SERVICE_UNKNOWN


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
@on_loop
async def test_reflection_describes_what_it_lists(version: str) -> None:
    async with connected(backend()) as channel:
        stub = channel.stream_stream(
            f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
            request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
            response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
        )
        conversation = stub()

        async def ask(**request: str) -> Any:
            await conversation.write(reflection_pb2.ServerReflectionRequest(**request))
            return await conversation.read()

        listed = (await ask(list_services="")).list_services_response.service
        assert set(SERVICES) <= {service.name for service in listed}
        for service in listed:
            answer = (await ask(file_containing_symbol=service.name)).file_descriptor_response
            files = [descriptor_pb2.FileDescriptorProto.FromString(file) for file in answer.file_descriptor_proto]
            declared = {f"{file.package}.{known.name}" for file in files for known in file.service}
            assert service.name in declared
        assert (await ask(file_containing_symbol="no.such.Thing")).error_response.error_code == 5
        await conversation.done_writing()
        assert await conversation.read() is grpc.aio.EOF
