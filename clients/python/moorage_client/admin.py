"""What a client can ask of Moorage's admin service. Other servers of the inference protocol raise NotSupported."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

from moorage_client import admin_messages as messages
from moorage_client.calls import Calls, Stream
from moorage_client.errors import InvalidResponse, MoorageClientError, Unavailable
from moorage_client.status import Explanation, ModelPolicy, PolicyChange, RunEstimate, Snapshot
from moorage_protocol import moorage_v1 as pb

DEFAULT_MAX_WAIT_S = 30.0


class Hold:
    """Bytes of a device that are yours for now."""

    def __init__(self, stream: Stream[pb.HoldResponse], granted: pb.HoldGranted) -> None:
        self.device = granted.device
        self.size_bytes = granted.size_bytes
        self._stream = stream

    async def wait_until_lost(self) -> MoorageClientError:
        """Wait for the hold to end by itself, such as with its server; why it did. The bytes are no longer yours.

        Cancellation: the hold goes on.
        """
        try:
            while await self._stream.read() is not None:
                pass
        except MoorageClientError as error:
            return error
        return Unavailable("the server ended the hold")


class AdminOperations(Calls):
    """Snapshots, standing, explanations and holds. Every method raises MoorageClientError."""

    async def snapshot(self) -> Snapshot:
        """The state of the server now: models, devices, what they hold and who waits."""
        answer = await self._query("GetSnapshot", pb.GetSnapshotRequest(), pb.GetSnapshotResponse)
        return messages.snapshot_of(answer.snapshot)

    async def watch(self, interval_s: float = 1.0) -> AsyncGenerator[Snapshot]:
        """The state now, then whenever it is another one, at most once in every interval (0.05 to 60).

        Whoever is slow misses states, never the newest. It does not end by itself; it raises where the connection is
        lost, and does not begin again. Cancellation, or closing the iterator, ends it on the server too.
        """
        stream = self._transport.stream("WatchSnapshot", messages.watch_request(interval_s), pb.WatchSnapshotResponse)
        try:
            while (answer := await stream.read()) is not None:
                yield messages.snapshot_of(answer.snapshot)
        finally:
            stream.cancel()

    async def set_policy(  # noqa: PLR0913 an option of the policy each
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
        """Change a model's standing where something is given; all of it, as it is then.

        Without a version, of the one that a request without a version would reach.
        Raises InvalidRequest, ModelNotFound, and Overloaded for a reservation that is not free.
        """
        change = PolicyChange(priority, reserved_bytes, limit_bytes, no_limit, pinned)
        request = messages.policy_request(model, version, change)
        answer = await self._query("SetModelPolicy", request, pb.SetModelPolicyResponse)
        return messages.policy_of(answer.policy)

    async def explain(self, model: str, rows: int, *, priority: int = 0, version: str = "") -> Explanation:
        """Whether the model could run so many rows now, and what would have to give way. priority: 0, the model's own.

        Raises InvalidRequest, ModelNotFound, Unavailable.
        """
        request = messages.explain_request(model, version, rows, priority)
        return messages.explanation_of(await self._query("Explain", request, pb.ExplainResponse))

    async def run_estimates(self, model: str, *, version: str = "") -> tuple[RunEstimate, ...]:
        """What is expected of the model's runs, by how many rows they have and how large these are.

        Raises InvalidRequest, ModelNotFound, Unavailable.
        """
        request = pb.GetRunEstimatesRequest(model_name=model, model_version=version)
        return messages.estimates_of(await self._query("GetRunEstimates", request, pb.GetRunEstimatesResponse))

    @asynccontextmanager
    async def hold(
        self, device: str, size_bytes: int, *, priority: int = 0, max_wait_s: float = DEFAULT_MAX_WAIT_S
    ) -> AsyncIterator[Hold]:
        """Bytes of a device's budget for this process, for as long as one is inside. Use as `async with`.

        Entering waits for them, at most max_wait_s. priority: 1 highest to 5; 0 for 3.
        Raises InvalidRequest, DeadlineExceeded, Overloaded, FailedPrecondition (more than the device has), Unavailable.
        Cancellation: whatever was taken is given back.
        """
        request = messages.hold_request(device, size_bytes, priority, max_wait_s)
        stream = self._transport.stream("Hold", request, pb.HoldResponse)
        try:
            answer = await stream.read()
            if answer is None or not answer.HasField("granted"):
                raise InvalidResponse("the server answered a hold without granting it")
            yield Hold(stream, answer.granted)
        finally:
            stream.cancel()
