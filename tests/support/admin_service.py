"""The admin service of the small server for tests of whatever talks to one: it answers what it was given."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import grpc

from moorage_protocol import moorage_v1 as pb
from moorage_protocol.services import ADMIN_METHODS


@dataclass
class Administration:
    """What the service does; tests change it while it runs.

    is_there: without it the server is like one of others that speak the protocol.
    refusal: how every call fails, where it is set. held: calls that hold bytes now. lost: set to end them.
    """

    is_there: bool = False
    refusal: tuple[grpc.StatusCode, str, tuple[tuple[str, str | bytes], ...]] | None = None
    requests: list[Any] = field(default_factory=list)
    snapshots: list[pb.Snapshot] = field(default_factory=lambda: [pb.Snapshot(ready=True)])
    policy: pb.ModelPolicy = field(default_factory=lambda: pb.ModelPolicy(priority=3))
    explanation: pb.ExplainResponse = field(default_factory=pb.ExplainResponse)
    estimates: pb.GetRunEstimatesResponse = field(default_factory=pb.GetRunEstimatesResponse)
    held: list[pb.HoldRequest] = field(default_factory=list)
    lost: threading.Event = field(default_factory=threading.Event)

    def begin(self, request: Any, context: grpc.ServicerContext) -> None:
        """Note a call, and end it where it is to fail."""
        if not self.is_there:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")
        self.requests.append(request)
        if self.refusal is not None:
            code, message, metadata = self.refusal
            context.set_trailing_metadata(metadata)
            context.abort(code, message)

    def get_snapshot(self, _: pb.GetSnapshotRequest, __: grpc.ServicerContext) -> pb.GetSnapshotResponse:
        return pb.GetSnapshotResponse(snapshot=self.snapshots[-1])

    def watch_snapshot(
        self, _: pb.WatchSnapshotRequest, __: grpc.ServicerContext
    ) -> Iterator[pb.WatchSnapshotResponse]:
        for snapshot in self.snapshots:
            yield pb.WatchSnapshotResponse(snapshot=snapshot)

    def set_model_policy(self, _: pb.SetModelPolicyRequest, __: grpc.ServicerContext) -> pb.SetModelPolicyResponse:
        return pb.SetModelPolicyResponse(policy=self.policy)

    def explain(self, _: pb.ExplainRequest, __: grpc.ServicerContext) -> pb.ExplainResponse:
        return self.explanation

    def get_run_estimates(self, _: pb.GetRunEstimatesRequest, __: grpc.ServicerContext) -> pb.GetRunEstimatesResponse:
        return self.estimates

    def hold(self, request: pb.HoldRequest, context: grpc.ServicerContext) -> Iterator[pb.HoldResponse]:
        ended = threading.Event()
        if not context.add_callback(ended.set):
            return
        self.held.append(request)
        try:
            yield pb.HoldResponse(granted=pb.HoldGranted(device=request.device, size_bytes=request.size_bytes))
            while not ended.wait(0.01):
                if self.lost.is_set():
                    context.abort(grpc.StatusCode.UNAVAILABLE, "the server is shutting down")
                yield pb.HoldResponse(keepalive=pb.HoldKeepalive())
        finally:
            self.held.remove(request)


def admin_handlers(administration: Administration) -> dict[str, "grpc.RpcMethodHandler[Any, Any]"]:
    """What a server registers."""
    return {
        "GetSnapshot": _unary("GetSnapshot", administration, administration.get_snapshot),
        "SetModelPolicy": _unary("SetModelPolicy", administration, administration.set_model_policy),
        "Explain": _unary("Explain", administration, administration.explain),
        "GetRunEstimates": _unary("GetRunEstimates", administration, administration.get_run_estimates),
        "WatchSnapshot": _stream("WatchSnapshot", administration, administration.watch_snapshot),
        "Hold": _stream("Hold", administration, administration.hold),
    }


def _unary(name: str, administration: Administration, answer: Callable[[Any, Any], Any]) -> Any:
    def handle(request: Any, context: grpc.ServicerContext) -> Any:
        administration.begin(request, context)
        return answer(request, context)

    method = ADMIN_METHODS[name]
    return grpc.unary_unary_rpc_method_handler(
        handle,
        request_deserializer=method.request.FromString,
        response_serializer=method.response.SerializeToString,
    )


def _stream(name: str, administration: Administration, answers: Callable[[Any, Any], Iterator[Any]]) -> Any:
    def handle(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        administration.begin(request, context)
        yield from answers(request, context)

    method = ADMIN_METHODS[name]
    return grpc.unary_stream_rpc_method_handler(
        handle,
        request_deserializer=method.request.FromString,
        response_serializer=method.response.SerializeToString,
    )
