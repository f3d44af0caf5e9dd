"""Load of one batch: items in packs, as fast as the server takes them, for some seconds.

Items are serialised before the clock starts, but for their ids. Prints what benchmarks.load does; latencies are from
when an item was sent until its result came.
"""

import argparse
import asyncio
import json
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache

import grpc

from benchmarks.load import ECHOES, OPTIONS, figures, requests_for
from moorage_protocol import moorage_v1 as pb
from moorage_protocol.services import BATCH_METHODS

OUTSTANDING = 512
_PACK = 64
_LIMIT_S = 3600.0


@cache
def _rest(workload: str) -> bytes:
    """An item but for its id."""
    (body, *_), _ = requests_for(workload, "")
    item = pb.BatchItems().items.add()
    item.MergeFromString(body)
    item.ClearField("model_name")
    item.ClearField("id")
    return item.SerializeToString()


def framed_items(workload: str, begin: int, end: int) -> bytes:
    """A serialized SubmitRequest with the items of these numbers, which are their ids."""
    rest = _rest(workload)
    return _framed(2, b"".join(_framed(1, _framed(3, str(number).encode()) + rest) for number in range(begin, end)))


def _framed(field: int, data: bytes) -> bytes:
    size = len(data)
    length = bytearray()
    while size >= 0x80:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes((field << 3 | 2, *length, size)) + data


@asynccontextmanager
async def submission(
    target: str, workload: str, *, durable: bool
) -> "AsyncIterator[grpc.aio.StreamStreamCall[bytes, pb.SubmitResponse]]":
    """A call that has opened a batch of its own."""
    async with grpc.aio.insecure_channel(target, options=OPTIONS) as channel:
        submit: grpc.aio.StreamStreamMultiCallable[bytes, pb.SubmitResponse] = channel.stream_stream(
            BATCH_METHODS["Submit"].path, response_deserializer=pb.SubmitResponse.FromString
        )
        call = submit(timeout=_LIMIT_S)
        model, _ = ECHOES[workload]
        header = pb.BatchHeader(batch_id=uuid.uuid4().hex, model_name=model, durable=durable)
        await call.write(pb.SubmitRequest(header=header).SerializeToString())
        yield call


async def run_batch(target: str, workload: str, outstanding: int, seconds: float, *, durable: bool) -> dict[str, float]:
    """outstanding: items that are sent and have no result."""
    latencies_s: list[float] = []
    sent_s: list[float] = []
    room = asyncio.Semaphore(outstanding)
    end_s = time.perf_counter() + seconds

    async def send(call: "grpc.aio.StreamStreamCall[bytes, pb.SubmitResponse]") -> None:
        while time.perf_counter() < end_s:
            begin = len(sent_s)
            for _ in range(min(_PACK, outstanding)):
                await room.acquire()
                sent_s.append(time.perf_counter())
            await call.write(framed_items(workload, begin, len(sent_s)))
        await call.done_writing()

    async with submission(target, workload, durable=durable) as call:
        began_s = time.perf_counter()
        sending = asyncio.create_task(send(call))
        async for message in call:
            now_s = time.perf_counter()
            for event in message.events:
                assert event.WhichOneof("kind") != "error", event
                if event.HasField("result"):
                    latencies_s.append(now_s - sent_s[int(event.result.item_id)])
                    room.release()
        await sending
        wall_s = time.perf_counter() - began_s
    assert len(latencies_s) == len(sent_s), "an item has no result, or several"
    return figures(latencies_s, wall_s)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", required=True)
    parser.add_argument("--workload", choices=[*ECHOES], required=True)
    parser.add_argument("--concurrency", type=int, required=True, help="items under way")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--durable", action="store_true")
    options = parser.parse_args()
    loaded = run_batch(options.target, options.workload, options.concurrency, options.seconds, durable=options.durable)
    print(json.dumps(asyncio.run(loaded)))


if __name__ == "__main__":
    main()
