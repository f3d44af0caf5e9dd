"""Callers of one model over grpc.aio, each with a channel of its own, that send raw requests and repeat nothing."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import grpc
import grpc.aio

from moorage_client.channels import CHANNEL_OPTIONS, Methods
from moorage_protocol import inference as pb
from tests.support.calls import request_of, rows_of

_NO_RETRIES: tuple[tuple[str, int], ...] = (("grpc.enable_retries", 0), ("grpc.use_local_subchannel_pool", 1))


@dataclass(frozen=True, slots=True)
class Answered:
    """One call. code: "OK" or how it failed. sent_s, took_s: monotonic. priority: as asked for."""

    code: str
    sent_s: float
    took_s: float
    priority: int = 0

    @property
    def ended_s(self) -> float:
        return self.sent_s + self.took_s


@asynccontextmanager
async def channels(target: str, count: int) -> AsyncIterator[Sequence[Methods]]:
    """So many channels to a server."""
    opened = [grpc.aio.insecure_channel(target, [*CHANNEL_OPTIONS, *_NO_RETRIES]) for _ in range(count)]
    try:
        yield [Methods(channel) for channel in opened]
    finally:
        await asyncio.gather(*(channel.close() for channel in opened))


async def call(methods: Methods, request: pb.ModelInferRequest, within_s: float, priority: int = 0) -> Answered:
    """One call, however it ends."""
    began_s = time.monotonic()
    code = "OK"
    try:
        await methods["ModelInfer"](request, timeout=within_s)
    except grpc.aio.AioRpcError as error:
        code = error.code().name
    return Answered(code, began_s, time.monotonic() - began_s, priority)


async def closed_loop(methods: Methods, model: str, until_s: float, within_s: float = 30.0) -> list[Answered]:
    """A caller that asks again as soon as it is answered."""
    request = request_of(model, rows_of(1e9))
    answers: list[Answered] = []
    while time.monotonic() < until_s:
        answers.append(await call(methods, request, within_s))
    return answers
