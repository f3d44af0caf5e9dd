"""What must hold after every trial: the server is the same, serves, holds what it should, and has leaked nothing."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

import psutil

from moorage_client import SyncClient
from moorage_client.status import ModelStatus, Snapshot
from tests.support.calls import Calls, output_of, request_of, rows_of
from tests.support.polling import eventually
from tests.support.running_server import RunningServer

_MORE_DESCRIPTORS = 12  # gRPC's poller and a connection that is just closing come and go
_DESCRIPTORS_OF_A_LANE = 3
_MORE_THREADS = 8  # gRPC grows its pools when it needs to
_MORE_RSS_BYTES = 48 * 1024 * 1024  # and its arenas


@dataclass(frozen=True)
class Baseline:
    """The server before a trial. descriptors: without those of the models that are loaded.

    models: the bytes that each holds, or may hold after a trial.
    """

    pid: int
    descriptors: int
    threads: int
    rss_bytes: int
    models: Mapping[str, int]

    @classmethod
    def of(cls, server: RunningServer, calls: Calls) -> "Baseline":
        """Take it when nothing is under way."""
        process = psutil.Process(server.pid)
        rss_bytes = process.memory_info().rss
        descriptors = process.num_fds() - _of_lanes(server)
        return cls(server.pid, descriptors, process.num_threads(), rss_bytes, calls.memory_bytes())


def after_check(server: RunningServer, calls: Calls, before: Baseline, *, echo: str = "echo") -> None:
    """Raises AssertionError where anything is not as before. What was put out to make room may still be out."""
    assert server.process.poll() is None, server.logs[-2000:]
    assert calls.is_live()
    eventually(calls.is_ready, what="the server is ready")
    eventually(lambda: calls.is_model_ready(echo), what=f"{echo} is ready")
    assert output_of(calls.infer(request_of(echo, rows_of(7)))).tolist() == [[7.0] * 4]
    _check_settled(server, before)
    now = psutil.Process(before.pid)
    most = before.descriptors + _of_lanes(server) + _MORE_DESCRIPTORS
    eventually(lambda: now.num_fds() <= most, what="descriptors are back")
    eventually(lambda: now.num_threads() <= before.threads + _MORE_THREADS, what="threads are back")
    eventually(lambda: now.memory_info().rss <= before.rss_bytes + _MORE_RSS_BYTES, what="memory is back")
    assert not any(word in server.logs for word in ("fork", "never retrieved", "was destroyed but it is pending"))


def _of_lanes(server: RunningServer) -> int:
    """The descriptors that the server has for the models in its workers."""
    with SyncClient(server.grpc) as client:
        models = client.snapshot().models
    return _DESCRIPTORS_OF_A_LANE * sum(model.state in ("resident", "offloaded") for model in models)


def _check_settled(server: RunningServer, before: Baseline) -> None:
    with SyncClient(server.grpc) as client:
        with suppress(AssertionError):  # what is wrong is said below
            eventually(lambda: not [*_unsettled(client.snapshot(), before)])
        unsettled = [*_unsettled(client.snapshot(), before)]
        assert not unsettled, unsettled


def _unsettled(snapshot: Snapshot, before: Baseline) -> Iterator[str]:
    """What waits, runs or is held though nothing should be under way."""
    for model in snapshot.models:
        yield from _unsettled_model(model, before)
    for device in snapshot.devices:
        if device.waiting or device.running_runs:
            yield f"{device.name}: {device.waiting} wait, {device.running_runs} run"
        held = {kind: size for kind, size in device.leased_bytes.items() if size and kind not in ("context", "weights")}
        if held:
            yield f"{device.name}: {held}"
        there = [model for model in snapshot.models if model.device == device.name]
        weights_bytes = sum(model.leased_bytes.get("weights", 0) for model in there)
        if weights_bytes != device.leased_bytes.get("weights", 0):
            yield f"{device.name}: models hold {weights_bytes}, leased is {device.leased_bytes}"
        host_bytes = sum(model.host_bytes for model in there)
        if host_bytes != device.host_leased_bytes:
            yield f"{device.name}: models hold {host_bytes} beside it, leased is {device.host_leased_bytes}"


def _unsettled_model(model: ModelStatus, before: Baseline) -> Iterator[str]:
    if model.waiting_rows or model.running_requests:
        yield f"{model.name}: {model.waiting_rows} rows wait, {model.running_requests} requests run"
    size_bytes = sum(model.leased_bytes.values())
    if size_bytes not in (0, before.models.get(model.name, 0)):
        yield f"{model.name}: {model.leased_bytes} as {model.state}"
    if size_bytes and model.state != "resident":
        yield f"{model.name}: {model.leased_bytes} though {model.state}"
    if before.models.get(model.name) and not model.ready:
        yield f"{model.name}: out of service, {model.reason}"
