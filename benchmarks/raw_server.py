"""The yardstick: a bare grpc.aio server that parses ModelInferRequest and answers with the same tensor.

No queue, no worker, no checks: what Python's gRPC costs by itself. `--tuned` gives it the switches that Moorage
sets for itself (uvloop, the polling listener, glibc's thresholds), so that the ratio shows Moorage's own cost.
"""

import argparse
import asyncio
import os

import uvloop


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tuned", action="store_true")
    options = parser.parse_args()
    if options.tuned:
        _tune()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop if options.tuned else None) as runner:
        runner.run(_serve())


def _tune() -> None:
    from moorage.devices.heap import keep_freed_memory
    from moorage.rpc.environment import prepare_grpc

    os.environ.pop("GRPC_EXPERIMENTS", None)
    prepare_grpc()
    keep_freed_memory()


async def _serve() -> None:
    import grpc

    from moorage_protocol import inference as pb
    from moorage_protocol.services import INFERENCE_SERVICE

    async def model_infer(request: pb.ModelInferRequest, _context: object) -> pb.ModelInferResponse:
        tensor = request.inputs[0]
        answer = pb.ModelInferResponse(model_name=request.model_name, model_version="1", id=request.id)
        answer.outputs.add(name="OUTPUT0", datatype=tensor.datatype, shape=tensor.shape)
        answer.raw_output_contents.append(request.raw_input_contents[0])
        return answer

    unlimited = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    server = grpc.aio.server(options=unlimited)
    handler = grpc.unary_unary_rpc_method_handler(
        model_infer,
        request_deserializer=pb.ModelInferRequest.FromString,
        response_serializer=pb.ModelInferResponse.SerializeToString,
    )
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(INFERENCE_SERVICE, {"ModelInfer": handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"gRPC  127.0.0.1:{port}", flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    main()
