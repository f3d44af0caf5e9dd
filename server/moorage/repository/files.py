"""The files of a repository: links that leave it are refused; a version's files are summed up without being opened."""

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from moorage.repository.errors import ManifestError
from moorage.repository.quoting import shown

PROFILE_FILE = "profile.json"
WEIGHT_SUFFIXES = frozenset({".pt", ".pt2", ".onnx", ".safetensors", ".bin", ".pth", ".npz"})


@dataclass(frozen=True, slots=True)
class FileSummary:
    """What a version's files amount to. The fingerprint changes when they do."""

    fingerprint: str
    weights_bytes: int


def is_ignored(name: str) -> bool:
    """Hidden entries are not part of a model, nor is what Python writes beside model.py when it is imported, or what
    was measured of it."""
    return name.startswith(".") or name in {"__pycache__", PROFILE_FILE}


def exists(path: Path) -> bool:
    """Whether there is an entry of that name; a link is not followed.

    Raises OSError where that can't be known, which os.path.lexists would call absent.
    """
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def contained(root: Path, path: Path, what: str) -> Path:
    """The path with all links resolved; `root` must be resolved already.

    Raises ManifestError, calling it `what`, where a link leads out of the root or nowhere.
    """
    try:
        resolved = Path(os.path.realpath(path, strict=True))
    except OSError as error:
        raise ManifestError([f"{what}: cannot be followed: {error.strerror}"]) from error
    if not resolved.is_relative_to(root):
        raise ManifestError([f"{what}: expected inside the repository, got a link that leaves it"])
    return resolved


def summarise(root: Path, folder: Path, manifest: bytes) -> FileSummary:
    """Sum up a resolved version folder; only names, sizes and times are looked at.

    Raises ManifestError for a link that leaves the root, OSError.
    """
    digest = hashlib.sha256(manifest)
    weights_bytes = 0
    for name, status in sorted(_files(root, folder), key=lambda file: file[0]):
        digest.update(b"\0%s\0%d\0%d" % (os.fsencode(name), status.st_size, status.st_mtime_ns))
        weights_bytes += status.st_size if Path(name).suffix.lower() in WEIGHT_SUFFIXES else 0
    return FileSummary(digest.hexdigest(), weights_bytes)


def _files(root: Path, folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    for parent, folders, files in os.walk(folder, onerror=_raise):
        folders[:] = [name for name in folders if not is_ignored(name)]
        for name in [*folders, *files]:
            path = Path(parent, name)
            if path.is_symlink():  # a linked folder is checked, though os.walk does not enter it
                contained(root, path, f"file {shown(name)}")
        for name in files:
            if not is_ignored(name):
                path = Path(parent, name)
                yield str(path.relative_to(folder)), path.stat()


def _raise(error: OSError) -> None:
    raise error
