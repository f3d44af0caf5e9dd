"""The message classes as the rest of Moorage uses them."""

import sys
from pathlib import Path
from subprocess import run

import moorage_protocol
from moorage_protocol import POOL
from moorage_protocol import inference as pb
from tests.unit.protocol.round_trip import round_trip


def test_round_trip() -> None:
    round_trip()


def test_classes_are_made_once_and_from_the_private_pool() -> None:
    field = pb.ModelInferRequest.DESCRIPTOR.fields_by_name["inputs"]
    assert field.message_type is pb.ModelInferRequest.InferInputTensor.DESCRIPTOR
    assert type(pb.ModelInferRequest().inputs.add()) is pb.ModelInferRequest.InferInputTensor
    assert POOL.FindMessageTypeByName("inference.ModelInferRequest") is pb.ModelInferRequest.DESCRIPTOR


def test_enums_by_name_value_and_wrapper() -> None:
    assert pb.TYPE_STRING == pb.DataType.TYPE_STRING == pb.DataType.Value("TYPE_STRING") == 13
    assert pb.DataType.Name(pb.TYPE_BF16) == "TYPE_BF16"
    assert pb.ModelInstanceGroup.Kind.Name(pb.ModelInstanceGroup.KIND_GPU) == "KIND_GPU"


def test_without_descriptors_the_error_says_how_to_build(tmp_path: Path) -> None:
    package = tmp_path / "moorage_protocol"
    package.mkdir()
    for source in Path(moorage_protocol.__file__).parent.glob("*.py"):
        (package / source.name).write_text(source.read_text())
    command = [sys.executable, "-c", "import moorage_protocol"]
    outcome = run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert outcome.returncode == 1
    assert "ImportError" in outcome.stderr
    assert "pip install -e ." in outcome.stderr
