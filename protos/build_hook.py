"""Compile every .proto below this folder when a wheel is built, or an editable install made.

Writes into `python/moorage_protocol`: `descriptors.binpb`, the FileDescriptorSet that the message classes are made
from at run time, and a typed stub `<path>_pb2.pyi` per .proto, which only type checkers and editors read.
"""

import subprocess
import sys
import tempfile
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from google.protobuf.compiler import plugin_pb2
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from grpc_tools import protoc  # type: ignore[import-untyped]
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE: Final = "moorage_protocol"
STUB_GENERATOR: Final = (sys.executable, "-c", "from mypy_protobuf.main import main; main()")


class ProtocolBuildHook(BuildHookInterface[Any]):
    """Runs for wheels, standard and editable; a source distribution carries only the .proto files."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before it collects files. RuntimeError: a .proto does not compile."""
        if self.target_name == "wheel":
            build(Path(self.root) / "protos")


def build(root: Path) -> None:
    """Compile `root/**/*.proto` and write what the package needs. RuntimeError: a .proto does not compile."""
    package = root / "python" / PACKAGE
    own = sorted(path.relative_to(root).as_posix() for path in root.rglob("*.proto"))
    compiled = compile_protos(root, own)
    stubs = generate_stubs(compiled, own)
    for stale in package.glob("*_pb2.pyi"):
        stale.unlink()
    for name, content in stubs.items():
        (package / name).write_text(content, encoding="utf-8")
    (package / "descriptors.binpb").write_bytes(without_comments(compiled).SerializeToString(deterministic=True))


def compile_protos(root: Path, own: list[str]) -> FileDescriptorSet:
    """The descriptors of `own` and of all they import, imports first, comments included."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "descriptors.binpb"
        well_known = files("grpc_tools") / "_proto"
        options = ["--include_imports", "--include_source_info", f"--descriptor_set_out={output}"]
        if protoc.main(["protoc", f"-I{root}", f"-I{well_known}", *options, *own]) != 0:
            raise RuntimeError(f"protoc failed on the files in {root}; its own message is above")
        return FileDescriptorSet.FromString(output.read_bytes())


def generate_stubs(compiled: FileDescriptorSet, own: list[str]) -> dict[str, str]:
    """File name to stub, one for each of `own`, importing each other as modules of the package."""
    request = plugin_pb2.CodeGeneratorRequest(file_to_generate=[module_path(name) for name in own], parameter="quiet")
    request.proto_file.extend(moved_into_package(file, own) for file in compiled.file)
    run = subprocess.run(STUB_GENERATOR, input=request.SerializeToString(), stdout=subprocess.PIPE, check=True)
    response = plugin_pb2.CodeGeneratorResponse.FromString(run.stdout)
    if response.error:
        raise RuntimeError(f"mypy-protobuf failed: {response.error}")
    return {Path(file.name).name: file.content for file in response.file}


def module_path(proto: str) -> str:
    """`inference/model_config.proto` becomes `moorage_protocol/inference_model_config.proto`."""
    return f"{PACKAGE}/{proto.replace('/', '_')}"


def moved_into_package(file: FileDescriptorProto, own: list[str]) -> FileDescriptorProto:
    """A copy of `file` under the name from which mypy-protobuf derives the right imports."""
    moved = FileDescriptorProto()
    moved.CopyFrom(file)
    if file.name in own:
        moved.name = module_path(file.name)
    moved.dependency[:] = [module_path(name) if name in own else name for name in file.dependency]
    return moved


def without_comments(compiled: FileDescriptorSet) -> FileDescriptorSet:
    """A copy without source positions and comments, which nothing reads at run time."""
    stripped = FileDescriptorSet()
    stripped.CopyFrom(compiled)
    for file in stripped.file:
        file.ClearField("source_code_info")
    return stripped
