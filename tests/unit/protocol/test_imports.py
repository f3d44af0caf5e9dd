"""One process may import our packages and tritonclient, which declares the same messages, in any order."""

import subprocess
import sys
from itertools import permutations

import pytest

PACKAGES = ("moorage, moorage_client", "moorage_protocol.inference", "tritonclient.grpc")

EXCHANGE = """
from moorage_protocol import inference as ours
from tritonclient.grpc import service_pb2 as theirs

request = ours.ModelInferRequest(model_name="identity", id="17", raw_input_contents=[b"\\x00\\xff"])
request.parameters["timeout"].int64_param = 1000
request.inputs.add(name="IN", datatype="UINT8", shape=[2])
arrived = theirs.ModelInferRequest.FromString(request.SerializeToString())
assert type(arrived) is not type(request)
assert arrived.inputs[0].shape == [2] and arrived.parameters["timeout"].int64_param == 1000
assert ours.ModelInferRequest.FromString(arrived.SerializeToString()) == request

loaded = ours.RepositoryModelLoadResponse(model_name="identity", isLoaded=True)
theirs.RepositoryModelLoadResponse.FromString(loaded.SerializeToString())
"""

NOT_IMPORTED = """
import sys
import moorage_protocol.inference, moorage_protocol.moorage_v1, moorage_protocol.services
assert not {"grpc", "moorage", "numpy"} & sys.modules.keys()
"""


def _run(program: str) -> None:
    command = [sys.executable, "-W", "error", "-c", program]
    outcome = subprocess.run(command, capture_output=True, text=True, check=False)
    assert outcome.returncode == 0, outcome.stderr


@pytest.mark.parametrize("order", list(permutations(PACKAGES)), ids=" then ".join)
def test_any_order_and_messages_travel_both_ways(order: tuple[str, ...]) -> None:
    _run("\n".join(f"import {package}" for package in order) + EXCHANGE)


def test_the_protocol_needs_neither_grpc_nor_the_server() -> None:
    _run(NOT_IMPORTED)
