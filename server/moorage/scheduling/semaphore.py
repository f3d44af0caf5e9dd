"""One model's share of its device's memory: a semaphore whose permits are bytes."""

import math


class MemorySemaphore:
    """What a model may hold, and holds.

    Up to `reserved_bytes` are kept for it and for nobody else; beyond them it borrows from what all share. Its
    executions (workspace and state) may hold `limit_bytes` together. The bytes themselves are leased from a
    DeviceBudget, which keeps the sums here; who is served first when there are not enough is for the device's line.
    """

    __slots__ = ("executing_bytes", "held_bytes", "limit_bytes", "owner", "reserved_bytes")

    def __init__(self, owner: str, *, reserved_bytes: int = 0, limit_bytes: int | None = None) -> None:
        self.owner = owner
        self.reserved_bytes = reserved_bytes
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self.executing_bytes = 0

    @property
    def unfilled_bytes(self) -> int:
        """Of what is reserved, what the model does not hold now."""
        return max(0, self.reserved_bytes - self.held_bytes)

    @property
    def room_bytes(self) -> float:
        """What its own limit lets its executions take now; infinite without one."""
        return math.inf if self.limit_bytes is None else self.limit_bytes - self.executing_bytes

    def count(self, growth_bytes: int, *, executing: bool) -> None:
        """Keep the sums. Only the budget calls this."""
        self.held_bytes += growth_bytes
        if executing:
            self.executing_bytes += growth_bytes
