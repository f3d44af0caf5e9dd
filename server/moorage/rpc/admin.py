"""moorage.v1.AdminService: snapshots, standing, explanations, and memory for processes outside."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Iterator
from typing import TYPE_CHECKING

import grpc

from moorage.domain.errors import ServerDraining
from moorage.domain.model import ModelKey
from moorage.rpc.admin_fields import MIN_INTERVAL_S, hold_order, interval_s, rows_and_priority, share_change
from moorage.rpc.admin_render import estimates_message, explanation_message, policy_message, snapshot_message
from moorage.rpc.guard import parse, server_stream, unary
from moorage.rpc.lookup import find
from moorage.rpc.ports import Backend
from moorage_protocol import moorage_v1 as pb
from moorage_protocol.services import ADMIN_METHODS, ADMIN_SERVICE

if TYPE_CHECKING:
    from moorage.rpc.guard import Context

KEEPALIVE_S = 15.0
"""The longest silence of a stream. A reader that hears nothing for much longer has lost its server."""

_STILL_HELD = pb.HoldResponse(keepalive=pb.HoldKeepalive()).SerializeToString()

log = logging.getLogger(__name__)


class Admin:
    """The handlers. Streams end with ServerDraining once `close` was called."""

    def __init__(self, backend: Backend, keepalive_s: float = KEEPALIVE_S) -> None:
        self._backend = backend
        self._keepalive_s = keepalive_s
        self._pictures = _Pictures(backend)
        self._watchers: set[asyncio.Event] = set()
        self._closing = asyncio.Event()
        backend.subscribe(self._on_change)

    def handler(self) -> grpc.GenericRpcHandler:
        """What a server registers."""
        methods = {
            "GetSnapshot": unary(ADMIN_METHODS["GetSnapshot"], self._get_snapshot),
            "WatchSnapshot": server_stream(self._watch_snapshot),
            "SetModelPolicy": unary(ADMIN_METHODS["SetModelPolicy"], self._set_model_policy),
            "Explain": unary(ADMIN_METHODS["Explain"], self._explain),
            "GetRunEstimates": unary(ADMIN_METHODS["GetRunEstimates"], self._get_run_estimates),
            "Hold": server_stream(self._hold),
        }
        return grpc.method_handlers_generic_handler(ADMIN_SERVICE, methods)

    def close(self) -> None:
        """End all streams, so that they do not hold up the server's stop. Holds give back what they have."""
        self._backend.unsubscribe(self._on_change)
        self._closing.set()
        self._on_change()

    def _on_change(self) -> None:
        self._pictures.forget()
        for changed in self._watchers:
            changed.set()

    async def _get_snapshot(self, _: pb.GetSnapshotRequest) -> pb.GetSnapshotResponse:
        return pb.GetSnapshotResponse(snapshot=snapshot_message(self._backend.snapshot()))

    async def _watch_snapshot(self, body: bytes, _: "Context") -> AsyncGenerator[bytes]:
        """The newest snapshot whenever the last one has been written, if it differs or the silence was long.

        What is on the ledger changes without a change of state, so it also looks once in every interval.
        """
        every_s = min(interval_s(parse(pb.WatchSnapshotRequest, body)), self._keepalive_s)
        told, told_at_s = b"", 0.0
        with self._watching() as changed:
            while not self._closing.is_set():
                changed.clear()
                newest = self._pictures.newest()
                silence_s = self._backend.now() - told_at_s
                if newest != told or silence_s >= self._keepalive_s:
                    yield newest
                    told, told_at_s = newest, self._backend.now()
                    await _wait(self._closing, every_s)
                else:
                    await _wait(changed, min(every_s, self._keepalive_s - silence_s))
        raise ServerDraining

    @contextlib.contextmanager
    def _watching(self) -> Iterator[asyncio.Event]:
        changed = asyncio.Event()
        self._watchers.add(changed)
        try:
            yield changed
        finally:
            self._watchers.discard(changed)

    async def _set_model_policy(self, request: pb.SetModelPolicyRequest) -> pb.SetModelPolicyResponse:
        key = self._key(request)
        share = await self._backend.set_share(key.name, str(key.version), share_change(request))
        log.info("model %s: %s", key, share)
        return pb.SetModelPolicyResponse(
            model_name=key.name, model_version=str(key.version), policy=policy_message(share)
        )

    async def _explain(self, request: pb.ExplainRequest) -> pb.ExplainResponse:
        key = self._key(request)
        rows, priority = rows_and_priority(request)
        return explanation_message(key, self._backend.explain(key.name, str(key.version), rows, priority))

    async def _get_run_estimates(self, request: pb.GetRunEstimatesRequest) -> pb.GetRunEstimatesResponse:
        key = self._key(request)
        return estimates_message(key, self._backend.run_estimates(key.name, str(key.version)))

    def _key(self, request: pb.SetModelPolicyRequest | pb.ExplainRequest | pb.GetRunEstimatesRequest) -> ModelKey:
        return find(self._backend.snapshot(), request.model_name, request.model_version).key

    async def _hold(self, body: bytes, context: "Context") -> AsyncGenerator[bytes]:
        """The lease lasts as long as this generator, and that as long as the call."""
        order = hold_order(parse(pb.HoldRequest, body))
        remaining_s = context.time_remaining()
        wait_s = order.max_wait_s if remaining_s is None else min(order.max_wait_s, remaining_s)
        deadline_s = self._backend.now() + wait_s
        holder = context.peer()
        async with self._backend.hold(order.device, order.size_bytes, order.priority, deadline_s):
            log.info("%s holds %d bytes of %s", holder, order.size_bytes, order.device)
            try:
                granted = pb.HoldGranted(device=order.device, size_bytes=order.size_bytes)
                yield pb.HoldResponse(granted=granted).SerializeToString()
                while not await _wait(self._closing, self._keepalive_s):
                    yield _STILL_HELD
            finally:
                log.info("%s gives back %d bytes of %s", holder, order.size_bytes, order.device)
        raise ServerDraining


class _Pictures:
    """Serialized snapshots. Watchers who look at the same time share one, however many they are."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._picture = b""
        self._taken_s = 0.0

    def newest(self) -> bytes:
        """A WatchSnapshotResponse: of now, or of a moment ago if no state has changed since. Equal only if alike."""
        now_s = self._backend.now()
        if not self._picture or now_s - self._taken_s >= MIN_INTERVAL_S:
            message = pb.WatchSnapshotResponse(snapshot=snapshot_message(self._backend.snapshot()))
            # Deterministic, so that the order of map entries does not look like a change.
            self._picture = message.SerializeToString(deterministic=True)
            self._taken_s = now_s
        return self._picture

    def forget(self) -> None:
        """A state has changed."""
        self._picture = b""


async def _wait(event: asyncio.Event, seconds: float) -> bool:
    """Whether the event is set, after so many seconds or as soon as it is."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()
