"""Reads a repository. Blocking: callers on an event loop run it in a thread.

models/                 the root
  embedder/             a model: a folder with a model.toml and numbered version folders
    model.toml
    1/model.py
"""

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from moorage.domain.errors import ModelNotFound
from moorage.domain.model import ModelSpec
from moorage.repository.errors import ManifestError, RepositoryError
from moorage.repository.files import contained, exists, is_ignored, summarise
from moorage.repository.manifest import (
    MANIFEST_FILE,
    MAX_MANIFEST_BYTES,
    Manifest,
    VersionPolicy,
    parse_manifest,
)
from moorage.repository.names import EXPECTED_MODEL_NAME, check_model_name, is_model_name, version_number
from moorage.repository.profiles import read_profiles
from moorage.repository.quoting import shown
from moorage.repository.specs import spec_of

# None: a simulated model needs no file, only a version folder.
RUNTIME_FILES: Mapping[str, str | None] = {
    "python": "model.py",
    "torchscript": "model.pt",
    "torch_export": "model.pt2",
    "onnx": "model.onnx",
    "simulated": None,
}


@dataclass(frozen=True, slots=True)
class RepositoryListing:
    """What a scan found.

    models: the chosen versions, sorted by name, then version.
    broken: folders that are no usable model, and why, by name. A name that no model may have is escaped.
    """

    models: tuple[ModelSpec, ...]
    broken: Mapping[str, str]


def scan(root: Path) -> RepositoryListing:
    """Every model of the repository; one that is broken does not stop the others.

    Raises RepositoryError where the root is no folder that can be read.
    """
    models: list[ModelSpec] = []
    broken: dict[str, str] = {}
    for name in _folder_names(root):
        if not is_model_name(name):
            broken[shown(name)] = f"folder name: expected {EXPECTED_MODEL_NAME}"
            continue
        try:
            models += scan_model(root, name)
        except ManifestError as error:
            broken[name] = str(error)
        except ModelNotFound:  # a link to a plain file, or a folder removed in this moment
            continue
    return RepositoryListing(tuple(models), broken)


def scan_model(root: Path, name: str) -> tuple[ModelSpec, ...]:
    """The versions of one model that its manifest chooses, in order.

    Raises ModelNotFound where there is no such folder, ManifestError where it is broken, and InvalidRequest,
    before anything is looked up, where no model can have that name.
    """
    check_model_name(name)
    root = Path(os.path.realpath(root))
    try:
        if not exists(root / name):
            raise ModelNotFound(name)
        folder = contained(root, root / name, "model folder")
        if not folder.is_dir():
            raise ModelNotFound(name)
        return _read_model(root, folder, name)
    except OSError as error:  # its own text would hold the path
        raise ManifestError([f"model folder: cannot be read: {error.strerror}"]) from error


def _folder_names(root: Path) -> list[str]:
    try:
        with os.scandir(root) as entries:
            # Links are listed whatever they lead to: none is followed before it is known to stay inside.
            return sorted(
                entry.name
                for entry in entries
                if not is_ignored(entry.name) and (entry.is_symlink() or entry.is_dir(follow_symlinks=False))
            )
    except OSError as error:
        raise RepositoryError(f"expected a folder of models, got {shown(str(root))}: {error.strerror}") from error


def _read_model(root: Path, folder: Path, name: str) -> tuple[ModelSpec, ...]:
    content = _manifest_content(root, folder)
    manifest = parse_manifest(content, name)
    found = _version_folders(root, folder)
    specs = []
    for version in _chosen(manifest.versions, found):
        _check_runtime_file(root, found[version], version, manifest)
        summary = summarise(root, found[version], content)
        spec = spec_of(manifest, name, version, found[version], summary)
        specs.append(replace(spec, profiles=read_profiles(root, found[version])))
    return tuple(specs)


def _manifest_content(root: Path, folder: Path) -> bytes:
    if not exists(folder / MANIFEST_FILE):
        raise ManifestError([f"{MANIFEST_FILE}: expected a manifest, got none"])
    path = contained(root, folder / MANIFEST_FILE, MANIFEST_FILE)
    if not path.is_file():  # opening a pipe would wait for ever
        raise ManifestError([f"{MANIFEST_FILE}: expected a plain file"])
    with path.open("rb") as file:
        content = file.read(MAX_MANIFEST_BYTES + 1)
    if len(content) > MAX_MANIFEST_BYTES:
        raise ManifestError([f"{MANIFEST_FILE}: expected at most {MAX_MANIFEST_BYTES} bytes, got more"])
    return content


def _version_folders(root: Path, folder: Path) -> dict[int, Path]:
    numbered = {version: name for name in os.listdir(folder) if (version := version_number(name)) is not None}
    resolved = {
        version: contained(root, folder / name, f"version folder {version}") for version, name in numbered.items()
    }
    return {version: path for version, path in resolved.items() if path.is_dir()}


def _chosen(policy: VersionPolicy, found: Collection[int]) -> list[int]:
    if not found:
        raise ManifestError(["versions: expected at least one numbered folder such as 1, got none"])
    if policy == "latest":
        return [max(found)]
    if policy == "all":
        return sorted(found)
    absent = [version for version in policy if version not in found]
    if absent:
        raise ManifestError([f"versions: expected a folder for each of {list(policy)}, got none for {absent}"])
    return list(policy)


def _check_runtime_file(root: Path, folder: Path, version: int, manifest: Manifest) -> None:
    file_name = RUNTIME_FILES[manifest.runtime]
    if file_name is None:
        return
    what = f"version {version}: {file_name}"
    if not exists(folder / file_name):
        raise ManifestError([f"{what}: expected this file for runtime '{manifest.runtime}', got none"])
    if not contained(root, folder / file_name, what).is_file():
        raise ManifestError([f"{what}: expected a plain file"])
