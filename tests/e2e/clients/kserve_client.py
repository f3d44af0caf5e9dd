"""Asks a server through KServe's own client: ADDRESS INPUTS.npz OUTPUTS.npz. Runs in KServe's environment.

The arrays are named MODEL/INPUT and MODEL/OUTPUT/ENCODING. On stdout: what else the client heard, as JSON.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import grpc
import numpy as np
from kserve import InferenceGRPCClient, InferInput, InferRequest
from numpy.typing import NDArray

TIMEOUT_S = 30.0


async def main(address: str, inputs: Path, outputs: Path) -> None:
    """Every question that the client can ask."""
    async with InferenceGRPCClient(address, timeout=TIMEOUT_S) as client:
        heard = {
            "live": await client.is_server_live(),
            "ready": await client.is_server_ready(),
            "unknown_model_ready": await client.is_model_ready("nobody"),
            "unknown_model_infer": await refusal(client),
            "models": {},
        }
        answers: dict[str, NDArray[Any]] = {}
        with np.load(inputs) as arrays:
            for key, values in arrays.items():
                model, name = key.split("/")
                heard["models"][model] = await client.is_model_ready(model)
                for encoding in ("raw", "typed"):
                    response = await client.infer(request(model, name, values, encoding))
                    assert (response.model_name, response.id) == (model, encoding), response
                    (output,) = response.outputs
                    answers[f"{model}/{output.name}/{encoding}"] = output.as_numpy()
    np.savez(outputs, allow_pickle=False, **answers)
    json.dump(heard, sys.stdout)


def request(model: str, name: str, values: NDArray[Any], encoding: str) -> Any:
    """The request's id is its encoding."""
    is_text = values.dtype.kind == "U"
    tensor = InferInput(name, list(values.shape), "BYTES" if is_text else "FP32")
    tensor.set_data_from_numpy(values.astype(object) if is_text else values, binary_data=encoding == "raw")
    return InferRequest(model, [tensor], request_id=encoding, parameters={"mood": "calm"})


async def refusal(client: Any) -> str:
    """The status of an inference of a model that does not exist."""
    try:
        await client.infer(request("nobody", "x", np.zeros(1, np.float32), "raw"))
    except grpc.RpcError as error:
        return str(error.code().name)
    return "OK"


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])))
