"""moorage.v1.BatchService: batches that outlive their calls."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import TYPE_CHECKING

import grpc

from moorage.batches.batch import Batch
from moorage.batches.registry import Batches
from moorage.domain.errors import InvalidRequest, ModelNotReady
from moorage.rpc import batch_fields
from moorage.rpc.batch_events import Events, Submission
from moorage.rpc.batch_items import items_of, opening_of
from moorage.rpc.batch_render import batch_message
from moorage.rpc.guard import parse, server_stream, two_way_stream, unary
from moorage.rpc.ports import Backend
from moorage_protocol import moorage_v1 as pb
from moorage_protocol.services import BATCH_METHODS, BATCH_SERVICE

if TYPE_CHECKING:
    from moorage.rpc.guard import Context

# gRPC ends what a call sends when it is half-closed, and also when it is lost. That it is lost it says a little later.
_NEWS_OF_A_LOSS_S = 0.05
_ADD_ITEMS = 256
_ADD_BYTES = 1024 * 1024


class BatchService:
    """The handlers. Streams end with ServerDraining once `close` was called."""

    def __init__(self, backend: Backend, batches: Batches) -> None:
        self._backend = backend
        self._batches = batches
        self._submissions: dict[str, Submission] = {}

    def handler(self) -> grpc.GenericRpcHandler:
        """What a server registers."""
        methods = {
            "Submit": two_way_stream(self._submit),
            "Attach": server_stream(self._attach),
            "Get": unary(BATCH_METHODS["Get"], self._get),
            "List": unary(BATCH_METHODS["List"], self._list),
            "Cancel": unary(BATCH_METHODS["Cancel"], self._cancel),
            "Delete": unary(BATCH_METHODS["Delete"], self._delete),
        }
        return grpc.method_handlers_generic_handler(BATCH_SERVICE, methods)

    def close(self) -> None:
        """End all streams, so that they do not hold up the server's stop."""
        self._batches.end_readers()

    async def _submit(self, bodies: AsyncIterator[bytes], context: "Context") -> AsyncGenerator[bytes]:
        first = await anext(aiter(bodies), b"")
        opening = opening_of(first)
        header = batch_fields.header(opening.header)
        with contextlib.suppress(ModelNotReady):  # it may be by the time that an item runs
            self._backend.resolve(header.model, header.model_version)
        batch = await self._batches.open(header)
        # A batch that ended with its server begins anew, whatever its client has seen of it: the first event says so.
        after_sequence = min(opening.after_sequence, batch.journal.last_sequence)
        async with self._sole(batch) as submission:
            submission.begin(self._read(opening, bodies, submission, context))
            async with contextlib.aclosing(Events(batch, after_sequence, submission).messages()) as messages:
                async for message in messages:
                    yield message

    @contextlib.asynccontextmanager
    async def _sole(self, batch: Batch) -> AsyncIterator[Submission]:
        """The one call that submits this batch: an older one ends before it begins to read."""
        batch_id = batch.header.batch_id
        older = self._submissions.get(batch_id)
        submission = self._submissions[batch_id] = Submission(batch)
        try:
            if older is not None:
                await older.end(taken_over=True)
            yield submission
        finally:
            await submission.end()
            if self._submissions.get(batch_id) is submission:
                del self._submissions[batch_id]

    async def _read(
        self, opening: pb.SubmitRequest, bodies: AsyncIterator[bytes], submission: Submission, context: "Context"
    ) -> None:
        """Have the batch keep what comes. Raises any MoorageError."""
        batch = submission.batch
        if opening.HasField("items"):
            await self._add(pb.SubmitRequest(items=opening.items).SerializeToString(), batch, submission)
        async for body in bodies:
            await self._add(body, batch, submission)
        await asyncio.sleep(_NEWS_OF_A_LOSS_S)
        if not context.cancelled():
            await batch.complete()

    async def _add(self, body: bytes, batch: Batch, submission: Submission) -> None:
        items = items_of(body)
        begin = 0
        while begin < len(items):
            end, size_bytes = begin, 0
            while end < len(items) and end - begin < _ADD_ITEMS and size_bytes < _ADD_BYTES:
                size_bytes += len(items[end].payload)
                end += 1
            submission.added(end - begin, await batch.add(items[begin:end]))
            begin = end

    async def _attach(self, body: bytes, _: "Context") -> AsyncGenerator[bytes]:
        request = parse(pb.AttachRequest, body)
        batch = await self._batches.find(batch_fields.batch_id(request.batch_id))
        _check_sequence(batch, request.after_sequence)
        async with contextlib.aclosing(Events(batch, request.after_sequence, None).messages()) as messages:
            async for message in messages:
                yield message

    async def _get(self, request: pb.GetRequest) -> pb.GetResponse:
        batch = await self._batches.find(batch_fields.batch_id(request.batch_id))
        return pb.GetResponse(batch=batch_message(batch.view()))

    async def _list(self, request: pb.ListRequest) -> pb.ListResponse:
        limit = batch_fields.list_limit(request)
        before = batch_fields.page_begin(request.page_token)
        views = await self._batches.newest(before, limit, dict(request.labels))
        last = views[-1] if len(views) == limit else None
        token = batch_fields.page_token(last.created_at_s, last.header.batch_id) if last is not None else ""
        return pb.ListResponse(batches=map(batch_message, views), next_page_token=token)

    async def _cancel(self, request: pb.CancelRequest) -> pb.CancelResponse:
        batch = await self._batches.cancel(batch_fields.batch_id(request.batch_id))
        return pb.CancelResponse(batch=batch_message(batch.view()))

    async def _delete(self, request: pb.DeleteRequest) -> pb.DeleteResponse:
        await self._batches.delete(batch_fields.batch_id(request.batch_id))
        return pb.DeleteResponse()


def _check_sequence(batch: Batch, after_sequence: int) -> None:
    """Raise for a number that was never told."""
    last = batch.journal.last_sequence
    if after_sequence > last + batch.has_ended:
        raise InvalidRequest("after_sequence", expected=f"at most {last}, the last there is", got=str(after_sequence))
