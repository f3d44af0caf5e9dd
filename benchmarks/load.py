"""Closed-loop load on one model: `concurrency` callers send one request after the other for some seconds; or, with
`--stream`, as many requests are kept under way on one stream.

Requests are serialised before the clock starts and answers stay bytes, so the client costs little but gRPC; the
first answer is parsed and compared. Prints one JSON object: requests, seconds, latency percentiles in ms.
"""

import argparse
import asyncio
import itertools
import json
import time
from collections import deque

import grpc
import numpy as np

from moorage_protocol import inference as pb
from moorage_protocol.services import INFERENCE_METHODS

ECHOES = {"64B": ("identity", [1, 16]), "600KB": ("identity_image", [1, 3, 224, 224])}
MODELS = {"mlp": [1, 1024]}
TEXTS = "embedder"  # sentences of mixed lengths
WORKLOADS = [*ECHOES, *MODELS, TEXTS]
MOST_WORDS = 96
OPTIONS = (
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),
)


def requests_for(workload: str, model: str) -> tuple[list[bytes], bytes | None]:
    """Serialised requests to be sent in turn, and the raw tensor that must come back, if it is known."""
    if workload == TEXTS:
        return [_text_request(model, seed) for seed in range(64)], None
    name, shape = ECHOES[workload] if workload in ECHOES else (workload, MODELS[workload])
    raw = np.random.default_rng(7).random(shape, dtype=np.float32).tobytes()
    request = pb.ModelInferRequest(model_name=model or name, id="1", raw_input_contents=[raw])
    request.inputs.add(name="INPUT0", datatype="FP32", shape=shape)
    return [request.SerializeToString()], raw if workload in ECHOES else None


def _text_request(model: str, seed: int) -> bytes:
    random = np.random.default_rng(seed)
    words = random.choice(
        ["memory", "harbour", "request", "model", "a", "of", "slowly", "batch"], random.integers(2, MOST_WORDS)
    )
    text = " ".join(words).encode()
    request = pb.ModelInferRequest(model_name=model or TEXTS, id="1")
    request.raw_input_contents.append(len(text).to_bytes(4, "little") + text)
    request.inputs.add(name="text", datatype="BYTES", shape=[1, 1])
    return request.SerializeToString()


async def run(target: str, workload: str, concurrency: int, seconds: float, model: str = "") -> dict[str, float]:
    """Load one server; what came of it. model: instead of the workload's own."""
    bodies, raw = requests_for(workload, model)
    channels = [grpc.aio.insecure_channel(target, options=OPTIONS) for _ in range(min(8, concurrency))]
    path = INFERENCE_METHODS["ModelInfer"].path
    calls: list[grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]] = [channel.unary_unary(path) for channel in channels]
    first = pb.ModelInferResponse.FromString(await calls[0](bodies[0], timeout=30))
    assert raw is None or first.raw_output_contents[0] == raw, "the answer is not what was sent"
    turns = itertools.cycle(bodies)
    latencies_s: list[float] = []
    end_s = time.perf_counter() + seconds

    async def caller(index: int) -> None:
        call = calls[index % len(calls)]
        while (began_s := time.perf_counter()) < end_s:
            await call(next(turns), timeout=30)
            latencies_s.append(time.perf_counter() - began_s)

    began_s = time.perf_counter()
    await asyncio.gather(*(caller(index) for index in range(concurrency)))
    wall_s = time.perf_counter() - began_s
    for channel in channels:
        await channel.close()
    return figures(latencies_s, wall_s)


async def run_stream(target: str, workload: str, concurrency: int, seconds: float, model: str = "") -> dict[str, float]:
    """Likewise on one stream of one channel."""
    bodies, raw = requests_for(workload, model)
    turns = itertools.cycle(bodies)
    latencies_s: list[float] = []
    async with grpc.aio.insecure_channel(target, options=OPTIONS) as channel:
        call: grpc.aio.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(
            INFERENCE_METHODS["ModelStreamInfer"].path
        )
        stream = call(timeout=seconds + 60)
        began_s = time.perf_counter()
        sent_s: deque[float] = deque()

        async def send() -> None:
            sent_s.append(time.perf_counter())
            await stream.write(next(turns))

        for _ in range(concurrency):
            await send()
        first = pb.ModelStreamInferResponse.FromString(await _read(stream))
        assert not first.error_message, first.error_message
        assert raw is None or first.infer_response.raw_output_contents[0] == raw, "the answer is not what was sent"
        while True:
            latencies_s.append(time.perf_counter() - sent_s.popleft())
            if time.perf_counter() < began_s + seconds:
                await send()
            if not sent_s:
                break
            await _read(stream)
        wall_s = time.perf_counter() - began_s
        await stream.done_writing()
    return figures(latencies_s, wall_s)


async def _read(stream: "grpc.aio.StreamStreamCall[bytes, bytes]") -> bytes:
    answer = await stream.read()
    assert isinstance(answer, bytes), "the stream ended"
    return answer


def figures(latencies_s: list[float], wall_s: float) -> dict[str, float]:
    """What a load prints."""
    latencies_s.sort()
    count = len(latencies_s)
    return {
        "requests": count,
        "seconds": wall_s,
        "p50_ms": latencies_s[count // 2] * 1e3,
        "p99_ms": latencies_s[min(count - 1, int(count * 0.99))] * 1e3,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", required=True)
    parser.add_argument("--workload", choices=WORKLOADS, required=True)
    parser.add_argument("--model", default="", help="instead of the workload's own")
    parser.add_argument("--concurrency", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--stream", action="store_true", help="one stream instead of unary calls")
    options = parser.parse_args()
    loading = run_stream if options.stream else run
    loaded = loading(options.target, options.workload, options.concurrency, options.seconds, options.model)
    print(json.dumps(asyncio.run(loaded)))


if __name__ == "__main__":
    main()
