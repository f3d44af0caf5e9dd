"""Every way a batch, or a call about one, can fail; as in errors."""

from moorage.domain.errors import MoorageError


class BatchNotFound(MoorageError):
    """No batch of that id, or it is no longer kept."""

    def __init__(self, batch_id: str) -> None:
        super().__init__(f"batch '{batch_id}' is not found")
        self.batch_id = batch_id


class BatchExists(MoorageError):
    """A batch of that id was opened with another header."""

    def __init__(self, batch_id: str) -> None:
        super().__init__(f"batch '{batch_id}' exists already, with another header")
        self.batch_id = batch_id


class BatchActive(MoorageError):
    """The batch has not ended."""

    def __init__(self, batch_id: str) -> None:
        super().__init__(f"batch '{batch_id}' has not ended; cancel it first")
        self.batch_id = batch_id


class BatchEnded(MoorageError):
    """The batch takes no more items."""

    def __init__(self, batch_id: str) -> None:
        super().__init__(f"batch '{batch_id}' takes no more items: it is complete, or has ended")
        self.batch_id = batch_id


class BatchTakenOver(MoorageError):
    """Another call goes on with submitting the batch."""

    def __init__(self, batch_id: str) -> None:
        super().__init__(f"another call goes on with batch '{batch_id}'")
        self.batch_id = batch_id


class TooManyBatches(MoorageError):
    """So many batches are under way as may be."""

    retry_after_s = 5.0

    def __init__(self, running: int, limit: int) -> None:
        super().__init__(f"{running} batches are under way, limit {limit}")
        self.running = running
        self.limit = limit


class StoreFull(MoorageError):
    """The store of durable batches has no room left, or its disk has none. Nothing of the call was kept."""

    retry_after_s = 5.0

    def __init__(self) -> None:
        super().__init__("the store of durable batches is full: nothing of this was kept")


class StoreFailed(MoorageError):
    """The store of durable batches can't be used now. Nothing of the call was kept."""

    retry_after_s = 5.0


class ResultTooLarge(MoorageError):
    """An item of a batch had answers that are together larger than a result may be."""

    def __init__(self, item_id: str, limit_bytes: int) -> None:
        super().__init__(f"item '{item_id}': its answers are larger than {limit_bytes} bytes together")
        self.item_id = item_id
        self.limit_bytes = limit_bytes
