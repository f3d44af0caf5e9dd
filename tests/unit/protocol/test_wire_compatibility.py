"""Our .proto files against the descriptors inside tritonclient: equal but for the additions listed here."""

from typing import Final

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from tritonclient.grpc import model_config_pb2, service_pb2

from moorage_protocol.pool import files_of
from moorage_protocol.services import INFERENCE_METHODS, INFERENCE_SERVICE, methods
from tests.unit.protocol.descriptors import Element, Field, Message, Rpc, flatten

MAP_ENTRY_OPTIONS: Final = b"\x38\x01"
PROPERTIES: Final = "inference.ModelMetadataResponse.PropertiesEntry"

ADDITIONS: Final[dict[str, Element]] = {
    # The Open Inference Protocol's.
    "inference.ModelMetadataResponse.properties": Field(
        6, "TYPE_MESSAGE", "LABEL_REPEATED", type_name=f".{PROPERTIES}"
    ),
    PROPERTIES: Message(is_map_entry=True, options=MAP_ENTRY_OPTIONS),
    f"{PROPERTIES}.key": Field(1, "TYPE_STRING"),
    f"{PROPERTIES}.value": Field(2, "TYPE_STRING"),
    # KServe's.
    "inference.RepositoryModelLoadResponse.model_name": Field(1, "TYPE_STRING"),
    "inference.RepositoryModelLoadResponse.isLoaded": Field(2, "TYPE_BOOL"),
    "inference.RepositoryModelUnloadResponse.model_name": Field(1, "TYPE_STRING"),
    "inference.RepositoryModelUnloadResponse.isUnloaded": Field(2, "TYPE_BOOL"),
}


@pytest.fixture(scope="module")
def ours() -> dict[str, Element]:
    return flatten(files_of("inference"))


@pytest.fixture(scope="module")
def theirs() -> dict[str, Element]:
    modules = (service_pb2, model_config_pb2)
    files = [FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb) for module in modules]
    assert {file.package for file in files} == {"inference"}
    return flatten(files)


def test_the_picture_of_theirs_is_whole(theirs: dict[str, Element]) -> None:
    """Guards the comparison itself: a flatten that lost things would make it pass."""
    assert sum(isinstance(element, Rpc) for element in theirs.values()) == 20
    assert theirs["inference.ModelInferRequest.raw_input_contents"] == Field(7, "TYPE_BYTES", "LABEL_REPEATED")
    assert theirs["inference.InferParameter.uint64_param"] == Field(5, "TYPE_UINT64", oneof="parameter_choice")
    assert "inference.ModelOptimizationPolicy.Cuda.GraphSpec.LowerBound.InputEntry.key" in theirs


def test_nothing_of_theirs_is_missing(ours: dict[str, Element], theirs: dict[str, Element]) -> None:
    assert theirs.keys() - ours.keys() == set()


def test_what_both_have_is_the_same(ours: dict[str, Element], theirs: dict[str, Element]) -> None:
    both = ours.keys() & theirs.keys()
    differing = {name: (ours[name], theirs[name]) for name in both if ours[name] != theirs[name]}
    assert differing == {}


def test_what_only_we_have_is_listed(ours: dict[str, Element], theirs: dict[str, Element]) -> None:
    assert {name: element for name, element in ours.items() if name not in theirs} == ADDITIONS


def test_the_table_of_methods_is_that_of_the_descriptors(theirs: dict[str, Element]) -> None:
    table = {
        f"{INFERENCE_SERVICE}.{method.name}": Rpc(
            f".{method.request.DESCRIPTOR.full_name}",
            f".{method.response.DESCRIPTOR.full_name}",
            method.client_streaming,
            method.server_streaming,
        )
        for method in INFERENCE_METHODS.values()
    }
    assert table == {name: element for name, element in theirs.items() if isinstance(element, Rpc)}
    assert INFERENCE_METHODS["ModelInfer"].path == "/inference.GRPCInferenceService/ModelInfer"


def test_an_unknown_service_is_a_key_error() -> None:
    with pytest.raises(KeyError, match="NoSuchService"):
        methods("inference.NoSuchService")
