"""One device's bytes, in memory: who holds them, who waits for them, and what would happen if more were asked for."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from moorage.domain.errors import DeadlineExceeded, Held, InvalidRequest, MemoryExhausted, ModelTooLarge
from moorage.engine.snapshot import DeviceSnapshot, ModelSnapshot
from moorage.scheduling.explain import Explanation, Holder, Verdict

MIB = 2**20
ROW_BYTES = MIB


class Ledger:
    """Grants holds in the order of asking, while there is room beside what models hold."""

    def __init__(self, device: str = "cpu", capacity_bytes: int = 2048 * MIB) -> None:
        self.device = device
        self.capacity_bytes = capacity_bytes
        self.holds: list[Holder] = []
        self.released = asyncio.Event()
        self.waiting = 0

    @property
    def held_bytes(self) -> int:
        return sum(hold.size_bytes for hold in self.holds)

    def snapshot(self) -> DeviceSnapshot:
        return DeviceSnapshot(
            self.device,
            self.capacity_bytes,
            {"held": self.held_bytes},
            configured_bytes=self.capacity_bytes,
            waiting=self.waiting,
        )

    def exhausted(self, what: str, size_bytes: int) -> MemoryExhausted:
        """Why so many bytes can't be had now."""
        return MemoryExhausted(
            what,
            device=self.device,
            needed_bytes=size_bytes,
            free_bytes=self.capacity_bytes - self.held_bytes,
            holders=tuple(Held(hold.owner, hold.kind, hold.size_bytes) for hold in self.holds),
        )

    @asynccontextmanager
    async def hold(self, device: str, size_bytes: int, priority: int, deadline_s: float) -> AsyncIterator[None]:
        if device != self.device:
            raise InvalidRequest("device", expected=self.device, got=device)
        if size_bytes > self.capacity_bytes:
            raise ModelTooLarge("the hold", device=device, needed_bytes=size_bytes, capacity_bytes=self.capacity_bytes)
        await self._wait_for(size_bytes, deadline_s)
        hold = Holder(f"hold-{len(self.holds)}", "held", size_bytes, priority)
        self.holds.append(hold)
        try:
            yield
        finally:
            self.holds.remove(hold)
            self.released.set()

    async def _wait_for(self, size_bytes: int, deadline_s: float) -> None:
        self.waiting += 1
        try:
            async with asyncio.timeout_at(deadline_s):
                while size_bytes > self.capacity_bytes - self.held_bytes:
                    self.released.clear()
                    await self.released.wait()
        except TimeoutError:
            raise DeadlineExceeded(0.0, "waiting for memory") from None
        finally:
            self.waiting -= 1

    def explain(self, model: ModelSnapshot, others: Sequence[ModelSnapshot], rows: int, priority: int) -> Explanation:
        """Other models' weights are idle and may go; what is held outside may not."""
        idle = [_weights(other) for other in others if other.leased_bytes]
        free_bytes = self.capacity_bytes - self.held_bytes - sum(weights.size_bytes for weights in idle)
        needed_bytes = rows * ROW_BYTES
        missing_bytes = max(0, needed_bytes - free_bytes - sum(weights.size_bytes for weights in idle))
        verdict = Verdict.NOW if needed_bytes <= free_bytes else Verdict.WAIT if missing_bytes else Verdict.EVICT
        return Explanation(
            verdict=verdict,
            device=self.device,
            priority=priority or model.share.priority,
            rows=rows,
            needed_bytes=needed_bytes,
            free_bytes=free_bytes,
            missing_bytes=missing_bytes,
            evict=tuple(idle) if verdict is Verdict.EVICT else (),
            preempt=(),
            holders=(*self.holds, *idle),
            reason=f"{model.key} needs {needed_bytes} bytes",
        )


def _weights(model: ModelSnapshot) -> Holder:
    return Holder(str(model.key), "weights", model.leased_bytes["weights"], model.share.priority)
