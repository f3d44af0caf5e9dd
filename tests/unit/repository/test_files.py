"""Links, fingerprints and sizes, through the scan."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from moorage.domain.model import ModelSpec
from moorage.repository.scan import scan, scan_model
from tests.support.model_folders import PYTHON, SIMULATED, write_model


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "models").mkdir()
    return tmp_path / "models"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A whole model beside the repository."""
    folder = write_model(tmp_path, "outside", PYTHON)
    (folder / "1" / "model.py").touch()
    return folder


def _link_model(model: Path, outside: Path) -> None:
    for name in ("model.toml", "1"):
        os.rename(model / name, model.parent.parent / f"was-{name}")
    model.rmdir()
    model.symlink_to(outside)


def _link_version(model: Path, outside: Path) -> None:
    (model / "2").symlink_to(outside / "1")


def _link_runtime_file(model: Path, outside: Path) -> None:
    (model / "1" / "model.py").symlink_to(outside / "1" / "model.py")


def _link_manifest(model: Path, outside: Path) -> None:
    (model / "model.toml").unlink()
    (model / "model.toml").symlink_to(outside / "model.toml")


def _link_weights(model: Path, outside: Path) -> None:
    (model / "1" / "model.py").touch()
    (model / "1" / "weights.bin").symlink_to(os.path.relpath(outside / "model.toml", model / "1"))


def _link_folder_of_weights(model: Path, outside: Path) -> None:
    (model / "1" / "model.py").touch()
    (model / "1" / "assets").symlink_to(outside)


def _chain(model: Path, outside: Path) -> None:
    (model / "1" / "model.py").symlink_to("hop")
    (model / "1" / "hop").symlink_to(outside / "1" / "model.py")


@pytest.mark.parametrize(
    "link",
    [_link_model, _link_version, _link_runtime_file, _link_manifest, _link_weights, _link_folder_of_weights, _chain],
)
def test_a_link_out_of_the_repository_breaks_the_model(
    root: Path, outside: Path, link: Callable[[Path, Path], None]
) -> None:
    link(write_model(root, "m", PYTHON), outside)
    write_model(root, "other")
    listing = scan(root)
    assert [spec.name for spec in listing.models] == ["other"]
    assert "expected inside the repository, got a link that leaves it" in listing.broken["m"]
    assert str(root.parent) not in listing.broken["m"]


def test_a_folder_whose_name_begins_like_the_roots_is_outside(root: Path) -> None:
    write_model(root.parent, "models-evil")
    (root / "m").symlink_to(root.parent / "models-evil")
    assert "link that leaves it" in scan(root).broken["m"]


@pytest.mark.parametrize(("target", "reason"), [("absent", "No such file"), ("m", "Too many levels")])
def test_a_link_to_nowhere_is_broken(root: Path, target: str, reason: str) -> None:
    (root / "m").symlink_to(target)
    assert scan(root).broken["m"].startswith("model folder: cannot be followed: " + reason)


def test_links_inside_the_repository_and_to_it_are_followed(root: Path) -> None:
    write_model(root, "m")
    (root / "alias").symlink_to("m")
    (root / "m" / "2").symlink_to("1")
    (root.parent / "current").symlink_to(root)
    listing = scan(root.parent / "current")
    assert [(spec.name, spec.version) for spec in listing.models] == [("alias", 2), ("m", 2)]
    assert not listing.broken


def _spec(root: Path) -> ModelSpec:
    (spec,) = scan_model(root, "m")
    return spec


def test_weights_are_summed(root: Path) -> None:
    folder = write_model(root, "m")
    (folder / "1" / "shards").mkdir()
    (folder / "1" / "a.safetensors").write_bytes(b"12345")
    (folder / "1" / "shards" / "b.BIN").write_bytes(b"678")
    (folder / "1" / "vocabulary.txt").write_bytes(b"not weights")
    assert _spec(root).weights_hint_bytes == 8


def _touch_manifest(folder: Path) -> None:
    (folder / "model.toml").write_text(SIMULATED + "# changed")


def _add_file(folder: Path) -> None:
    (folder / "1" / "new.txt").touch()


def _grow_file(folder: Path) -> None:
    (folder / "1" / "data.txt").write_bytes(b"more")
    os.utime(folder / "1" / "data.txt", ns=(1, 1))


def _touch_file(folder: Path) -> None:
    os.utime(folder / "1" / "data.txt", ns=(2, 2))


@pytest.mark.parametrize("change", [_touch_manifest, _add_file, _grow_file, _touch_file])
def test_the_fingerprint_changes_with_the_files(root: Path, change: Callable[[Path], None]) -> None:
    folder = write_model(root, "m")
    (folder / "1" / "data.txt").touch()
    os.utime(folder / "1" / "data.txt", ns=(1, 1))
    before = _spec(root).fingerprint
    assert _spec(root).fingerprint == before
    change(folder)
    assert _spec(root).fingerprint != before


def test_importing_the_model_does_not_change_the_fingerprint(root: Path) -> None:
    folder = write_model(root, "m")
    before = _spec(root).fingerprint
    (folder / "1" / "__pycache__").mkdir()
    (folder / "1" / "__pycache__" / "model.pyc").touch()
    assert _spec(root).fingerprint == before
