"""The blocking client: the same operations over a blocking channel."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import Self, TypeVar

import grpc

from moorage_client.admin import DEFAULT_MAX_WAIT_S
from moorage_client.admin import Hold as _Hold
from moorage_client.aio import Client
from moorage_client.batch_messages import BatchInfo, BatchItem, BatchOptions
from moorage_client.batches import Batch
from moorage_client.blocking import BlockingTransport, run
from moorage_client.errors import MoorageClientError
from moorage_client.messages import ModelInfo, ModelMetadata, ParameterValue, ServerMetadata
from moorage_client.operations import Operations
from moorage_client.status import Explanation, ModelPolicy, RunEstimate, Snapshot
from moorage_client.sync_batches import SyncBatch
from moorage_client.tensors import Array, Tensor
from moorage_protocol import inference as pb

Item = TypeVar("Item")

_DEFAULT_OPTIONS = BatchOptions()


class SyncClient:
    """A blocking client of one server, safe to share between threads. Use as `with SyncClient("host:port") as client:`.

    Its methods are those of `moorage_client.operations.Operations`, where each is described, and raise the same errors.

    attempts: tries per call, the first included.
    timeout_s: of calls that compute nothing; `infer`, `load` and `unload` take their own.
    metadata: sent with every call, such as an authorization header.
    """

    def __init__(
        self,
        target: str,
        *,
        attempts: int = 3,
        timeout_s: float | None = 30.0,
        credentials: grpc.ChannelCredentials | None = None,
        metadata: tuple[tuple[str, str], ...] = (),
    ) -> None:
        self._transport = BlockingTransport(target, credentials, metadata)
        self._aio_client = partial(Client, target, attempts=attempts, credentials=credentials, metadata=metadata)
        self._operations = Operations(self._transport, attempts=attempts, timeout_s=timeout_s)

    def is_live(self) -> bool:
        """Whether the server runs."""
        return run(self._operations.is_live())

    def is_ready(self) -> bool:
        """Whether the server takes work."""
        return run(self._operations.is_ready())

    def is_model_ready(self, model: str, version: str = "") -> bool:
        """Whether a request for the model would be accepted now."""
        return run(self._operations.is_model_ready(model, version))

    def server_metadata(self) -> ServerMetadata:
        """Name, version and extensions of the server."""
        return run(self._operations.server_metadata())

    def metadata(self, model: str, version: str = "") -> ModelMetadata:
        """Inputs and outputs of a model."""
        return run(self._operations.metadata(model, version))

    def config(self, model: str, version: str = "") -> pb.ModelConfig:
        """The model's configuration, as the protocol's own message."""
        return run(self._operations.config(model, version))

    def models(self) -> tuple[ModelInfo, ...]:
        """Every version of every model in the repository."""
        return run(self._operations.models())

    def statistics(self, model: str = "", version: str = "") -> tuple[pb.ModelStatistics, ...]:
        """Counts and durations of a model, or of all; as the protocol's own messages."""
        return run(self._operations.statistics(model, version))

    def load(self, model: str, *, timeout_s: float | None = None) -> None:
        """Load a model, or load it again; returns when it is ready."""
        run(self._operations.load(model, timeout_s=timeout_s))

    def unload(self, model: str, *, timeout_s: float | None = None) -> None:
        """Unload a model, after the work it has accepted."""
        run(self._operations.unload(model, timeout_s=timeout_s))

    def infer(  # noqa: PLR0913 the protocol's options, each with a default
        self,
        model: str,
        inputs: Mapping[str, Tensor],
        *,
        outputs: Sequence[str] = (),
        version: str = "",
        parameters: Mapping[str, ParameterValue] | None = None,
        priority: int = 0,
        timeout_s: float | None = None,
        request_id: str = "",
    ) -> dict[str, Array]:
        """Run the model; all its outputs by name, or those named in `outputs`."""
        return run(
            self._operations.infer(
                model,
                inputs,
                outputs=outputs,
                version=version,
                parameters=parameters,
                priority=priority,
                timeout_s=timeout_s,
                request_id=request_id,
            )
        )

    def wait_until_ready(self, timeout_s: float, models: Sequence[str] = ()) -> None:
        """Wait for the server to be reachable and ready, and for these models to be."""
        run(self._operations.wait_until_ready(timeout_s, models))

    def snapshot(self) -> Snapshot:
        """The state of the server now."""
        return run(self._operations.snapshot())

    def watch(self, interval_s: float = 1.0) -> Iterator[Snapshot]:
        """The state now, then whenever it is another one. Blocks in between; close the iterator to end it."""
        snapshots = self._operations.watch(interval_s)
        try:
            while (snapshot := run(_next(snapshots))) is not None:
                yield snapshot
        finally:
            run(snapshots.aclose())

    def set_policy(  # noqa: PLR0913 an option of the policy each
        self,
        model: str,
        *,
        version: str = "",
        priority: int | None = None,
        reserved_bytes: int | None = None,
        limit_bytes: int | None = None,
        no_limit: bool = False,
        pinned: bool | None = None,
    ) -> ModelPolicy:
        """Change a model's standing where something is given; all of it, as it is then."""
        return run(
            self._operations.set_policy(
                model,
                version=version,
                priority=priority,
                reserved_bytes=reserved_bytes,
                limit_bytes=limit_bytes,
                no_limit=no_limit,
                pinned=pinned,
            )
        )

    def explain(self, model: str, rows: int, *, priority: int = 0, version: str = "") -> Explanation:
        """Whether the model could run so many rows now, and what would have to give way."""
        return run(self._operations.explain(model, rows, priority=priority, version=version))

    def run_estimates(self, model: str, *, version: str = "") -> tuple[RunEstimate, ...]:
        """What is expected of the model's runs, by how many rows they have and how large these are."""
        return run(self._operations.run_estimates(model, version=version))

    @contextmanager
    def hold(
        self, device: str, size_bytes: int, *, priority: int = 0, max_wait_s: float = DEFAULT_MAX_WAIT_S
    ) -> "Iterator[SyncHold]":
        """Bytes of a device's budget for this process, for as long as one is inside. Use as `with`."""
        hold = self._operations.hold(device, size_bytes, priority=priority, max_wait_s=max_wait_s)
        granted = run(hold.__aenter__())
        try:
            yield SyncHold(granted)
        finally:
            run(hold.__aexit__(None, None, None))

    def batch(
        self,
        batch_id: str,
        model: str,
        items: Iterable[BatchItem],
        options: BatchOptions = _DEFAULT_OPTIONS,
        *,
        after_sequence: int = 0,
    ) -> SyncBatch:
        """A batch of items for a model: opened, or gone on with. It has a connection, and a thread, of its own."""

        def begin() -> tuple[Batch, Callable[[], Awaitable[None]]]:
            client = self._aio_client()
            return client.batch(batch_id, model, items, options, after_sequence=after_sequence), client.close

        return SyncBatch(begin)

    def attach(self, batch_id: str, after_sequence: int = 0) -> SyncBatch:
        """A batch that was submitted before, from an outcome on."""

        def begin() -> tuple[Batch, Callable[[], Awaitable[None]]]:
            client = self._aio_client()
            return client.attach(batch_id, after_sequence), client.close

        return SyncBatch(begin)

    def batch_info(self, batch_id: str) -> BatchInfo:
        """A batch as it is now."""
        return run(self._operations.batch_info(batch_id))

    def batches(self, labels: Mapping[str, str] | None = None) -> Iterator[BatchInfo]:
        """Those that have these labels, the newest first."""
        found = self._operations.batches(labels)
        while (info := run(_next(found))) is not None:
            yield info

    def cancel_batch(self, batch_id: str) -> BatchInfo:
        """End a batch: items without a result get none. As it is then."""
        return run(self._operations.cancel_batch(batch_id))

    def delete_batch(self, batch_id: str) -> None:
        """Forget a batch that has ended, and its results."""
        run(self._operations.delete_batch(batch_id))

    def close(self) -> None:
        """End the connection at once; calls under way in other threads raise Cancelled."""
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class SyncHold:
    """Bytes of a device that are yours for now."""

    def __init__(self, hold: _Hold) -> None:
        self.device = hold.device
        self.size_bytes = hold.size_bytes
        self._hold = hold

    def wait_until_lost(self) -> MoorageClientError:
        """Block until the hold ends by itself, such as with its server; why it did. The bytes are no longer yours."""
        return run(self._hold.wait_until_lost())


async def _next(generator: AsyncGenerator[Item]) -> Item | None:
    """The next one; None after the last."""
    return await anext(generator, None)
