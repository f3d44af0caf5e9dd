"""What the checks ask of a server, in numbers."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import numpy as np

from moorage_client import Client, ModelStatus, Snapshot
from tests.gpu.serving import Served

# The first of all starts a worker, and has it import torch.
ANSWER_LIMIT_S = 90.0
_X = np.zeros((1, 1), np.int64)


@dataclass(frozen=True, slots=True)
class Answer:
    """A heavy model's: its weights' checksum, and bytes of the device as its worker's allocator counts them."""

    checksum: int
    allocated_bytes: int
    peak_bytes: int
    reserved_bytes: int
    took_s: float


async def ask(client: Client, model: str) -> Answer:
    """One run of a heavy model. Raises MoorageClientError."""
    began_s = time.monotonic()
    outputs = await client.infer(model, {"x": _X}, timeout_s=ANSWER_LIMIT_S)
    took_s = time.monotonic() - began_s
    numbers = [int(outputs[name][0, 0]) for name in ("sum", "allocated", "peak", "reserved")]
    return Answer(numbers[0], numbers[1], numbers[2], numbers[3], took_s)


def model_in(snapshot: Snapshot, name: str) -> ModelStatus:
    return next(model for model in snapshot.models if model.name == name)


async def put_all_out(served: Served) -> None:
    """Have every idle model leave the device, by a hold on all that workers don't take themselves."""
    device = await served.device()
    size_bytes = device.capacity_bytes - device.leased_bytes.get("context", 0)
    async with served.client.hold(device.name, size_bytes, priority=1, max_wait_s=30.0):
        return


async def eventually(look: Callable[[], Awaitable[bool]], within_s: float) -> bool:
    """Whether it came true in time; looked at ten times a second."""
    deadline_s = time.monotonic() + within_s
    while not await look():
        if time.monotonic() > deadline_s:
            return False
        await asyncio.sleep(0.1)
    return True
