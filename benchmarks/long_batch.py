"""One durable batch of a million items: `python -m benchmarks.long_batch`.

`identity` on a server of its own. Says how the server's resident memory grew after the first 10,000 items, what part of
the throughput of its first tenth the last tenth has, and that every id has exactly one result. Three minutes.
"""

import argparse
import asyncio
import os
import tempfile
import time

import grpc
import psutil

from benchmarks.batch_load import OUTSTANDING, framed_items, submission
from benchmarks.hot_path import MOORAGE, Server
from moorage_protocol import moorage_v1 as pb

_SETTLED_ITEMS = 10_000
_PACK = 64
MIB = 1024 * 1024


async def run(target: str, pid: int, count: int) -> None:
    """Submit so many items, and say what came of it."""
    server = psutil.Process(pid)
    room = asyncio.Semaphore(OUTSTANDING)
    seen = bytearray(count)
    marks: list[tuple[int, float, int]] = []

    async def send(call: "grpc.aio.StreamStreamCall[bytes, pb.SubmitResponse]") -> None:
        for begin in range(0, count, _PACK):
            end = min(count, begin + _PACK)
            for _ in range(begin, end):
                await room.acquire()
            await call.write(framed_items("64B", begin, end))
        await call.done_writing()

    async with submission(target, "64B", durable=True) as call:
        sending = asyncio.create_task(send(call))
        done, began_s = 0, time.perf_counter()
        async for message in call:
            for event in message.events:
                if event.HasField("result"):
                    seen[int(event.result.item_id)] += 1
                    room.release()
                    done += 1
                    if done % _SETTLED_ITEMS == 0:
                        marks.append((done, time.perf_counter(), server.memory_info().rss))
        await sending
    assert all(times == 1 for times in seen), "an item has no result, or several"
    _tell(count, marks, began_s)


def _tell(count: int, marks: list[tuple[int, float, int]], began_s: float) -> None:
    at_s = {0: began_s} | {done: at_s for done, at_s, _ in marks}
    tenth = count // 10
    first, last = tenth / (at_s[tenth] - at_s[0]), tenth / (at_s[count] - at_s[count - tenth])
    grown = max(rss for _, _, rss in marks) - marks[0][2]
    print(f"{count} items in {at_s[count] - began_s:.0f} s, each with one result")
    print(f"items per second: {first:.0f} of the first tenth, {last:.0f} of the last: {last / first:.2f}")
    print(f"the server grew by {grown / MIB:.1f} MiB after the first {_SETTLED_ITEMS}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=1_000_000, help="a multiple of 100,000")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MOORAGE_BATCHES__PATH"] = f"{folder}/batches.db"
        server = Server(MOORAGE)
        try:
            asyncio.run(run(server.target, server.pid, options.items))
        finally:
            server.stop()


if __name__ == "__main__":
    main()
