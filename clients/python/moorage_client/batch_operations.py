"""What a client can ask about batches. Other servers of the inference protocol raise NotSupported."""

from collections.abc import AsyncGenerator, Mapping

from moorage_client.batch_messages import BatchInfo, info_of
from moorage_client.calls import Calls, Stream
from moorage_protocol import moorage_v1 as pb

_PAGE = 100


class AttachCall:
    """See batches.BatchCall. It sends nothing."""

    def __init__(self, stream: Stream[pb.AttachResponse]) -> None:
        self._stream = stream

    async def read(self) -> pb.AttachResponse | None:
        return await self._stream.read()

    async def write(self, request: pb.SubmitRequest) -> None:
        raise AssertionError("nothing is sent to a batch that is only attached to")

    async def done_writing(self) -> None: ...

    def cancel(self) -> None:
        self._stream.cancel()


class BatchOperations(Calls):
    """States of batches, and their end. Every method raises MoorageClientError."""

    async def batch_info(self, batch_id: str) -> BatchInfo:
        """A batch as it is now. Raises ModelNotFound."""
        request = pb.GetRequest(batch_id=batch_id)
        return info_of((await self._query("Get", request, pb.GetResponse)).batch)

    async def batches(self, labels: Mapping[str, str] | None = None) -> AsyncGenerator[BatchInfo]:
        """Those that have these labels, the newest first."""
        request = pb.ListRequest(limit=_PAGE, labels=dict(labels or {}))
        while True:
            answer = await self._query("List", request, pb.ListResponse)
            for batch in answer.batches:
                yield info_of(batch)
            if not answer.next_page_token:
                return
            request.page_token = answer.next_page_token

    async def cancel_batch(self, batch_id: str) -> BatchInfo:
        """End a batch: items without a result get none. As it is then. Raises ModelNotFound."""
        request = pb.CancelRequest(batch_id=batch_id)
        return info_of((await self._query("Cancel", request, pb.CancelResponse)).batch)

    async def delete_batch(self, batch_id: str) -> None:
        """Forget a batch that has ended, and its results. Raises ModelNotFound, and FailedPrecondition before that."""
        await self._query("Delete", pb.DeleteRequest(batch_id=batch_id), pb.DeleteResponse)
