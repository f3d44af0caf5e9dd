import os
from pathlib import Path

import pytest

from moorage.domain.errors import InvalidRequest, ModelNotFound
from moorage.domain.model import MemoryPolicy, Preemption, PreemptionPolicy, SharePolicy
from moorage.repository.errors import ManifestError, RepositoryError
from moorage.repository.scan import scan, scan_model
from tests.support.model_folders import PYTHON, SIMULATED, write_model
from tests.unit.repository.test_names import HOSTILE_NAMES


def test_models_are_found_and_broken_ones_do_not_stop_them(tmp_path: Path) -> None:
    write_model(tmp_path, "good", SIMULATED + "memory = { weights = '1 MiB' }", versions=(1, 2))
    write_model(tmp_path, "bad", "runtime = 'x'")
    (tmp_path / "notes").mkdir()
    (tmp_path / "odd name").mkdir()
    (tmp_path / ".git").mkdir()
    (tmp_path / "README.md").touch()
    listing = scan(tmp_path)
    assert [(spec.name, spec.version) for spec in listing.models] == [("good", 2)]
    assert sorted(listing.broken) == ["'odd name'", "bad", "notes"]
    assert listing.broken["notes"] == "model.toml: expected a manifest, got none"
    assert listing.models[0].memory == MemoryPolicy(weights_bytes=1024**2)
    assert listing.models[0].path == (tmp_path / "good" / "2").resolve()


def test_a_models_share_and_preemption_reach_its_spec(tmp_path: Path) -> None:
    memory = "memory = { state = 7, reserved = 5, limit = 9, pinned = true }\n"
    scheduling = "scheduling = { priority = 2, preemption = 'never', max_preemptions = 0 }"
    write_model(tmp_path, "plain")
    write_model(tmp_path, "special", SIMULATED + memory + scheduling)
    plain, special = sorted(scan(tmp_path).models, key=lambda spec: spec.name)
    assert (plain.memory.state_bytes, plain.share, plain.preemption) == (None, SharePolicy(), PreemptionPolicy())
    assert special.memory.state_bytes == 7
    assert special.share == SharePolicy(priority=2, reserved_bytes=5, limit_bytes=9, pinned=True)
    assert special.preemption == PreemptionPolicy(Preemption.NEVER, max_preemptions=0)


def test_a_repository_that_is_no_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(RepositoryError, match="expected a folder of models, got 'absent'"):
        scan(Path("absent"))
    (tmp_path / "file").touch()
    with pytest.raises(RepositoryError, match="Not a directory"):
        scan(tmp_path / "file")


@pytest.mark.parametrize(
    ("policy", "chosen"), [("'latest'", [10]), ("'all'", [1, 2, 10]), ("[2]", [2]), ("[10, 1]", [1, 10])]
)
def test_the_policy_chooses_versions(tmp_path: Path, policy: str, chosen: list[int]) -> None:
    folder = write_model(tmp_path, "m", SIMULATED + f"versions = {policy}", versions=(1, 2, 10))
    for name in ("03", "0", "draft", "-4"):
        (folder / name).mkdir()
    (folder / "11").touch()
    assert [spec.version for spec in scan_model(tmp_path, "m")] == chosen


@pytest.mark.parametrize(
    ("manifest", "versions", "reason"),
    [
        (SIMULATED, (), "versions: expected at least one numbered folder such as 1, got none"),
        (SIMULATED + "versions = [1, 3]", (1,), "versions: expected a folder for each of [1, 3], got none for [3]"),
        (PYTHON, (1,), "version 1: model.py: expected this file for runtime 'python', got none"),
        (PYTHON.replace("python", "onnx"), (1,), "version 1: model.onnx: expected this file for runtime 'onnx'"),
        ("#" * (1024 * 1024 + 1), (1,), "model.toml: expected at most 1048576 bytes, got more"),
    ],
    ids=["no versions", "absent version", "no model.py", "no model.onnx", "long manifest"],
)
def test_what_is_missing_is_said(tmp_path: Path, manifest: str, versions: tuple[int, ...], reason: str) -> None:
    write_model(tmp_path, "m", manifest, versions=versions)
    assert scan(tmp_path).broken["m"].startswith(reason)


def test_a_pipe_or_folder_in_a_files_place_is_refused_without_opening_it(tmp_path: Path) -> None:
    pipe = write_model(tmp_path, "pipe")
    (pipe / "model.toml").unlink()
    os.mkfifo(pipe / "model.toml")
    folder = write_model(tmp_path, "folder", PYTHON)
    (folder / "1" / "model.py").mkdir()
    assert scan(tmp_path).broken == {
        "folder": "version 1: model.py: expected a plain file",
        "pipe": "model.toml: expected a plain file",
    }


def test_a_model_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for name in ("absent", "file"):
        with pytest.raises(ModelNotFound):
            scan_model(tmp_path, name)
    with pytest.raises(ModelNotFound):
        scan_model(tmp_path / "absent", "m")


@pytest.mark.parametrize("name", HOSTILE_NAMES, ids=ascii)
def test_a_hostile_name_touches_no_file(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def untouchable(*_arguments: object, **_options: object) -> None:
        raise AssertionError("the file system was touched")

    for function in ("stat", "lstat", "open", "scandir", "listdir", "readlink"):
        monkeypatch.setattr(os, function, untouchable)
    with pytest.raises(InvalidRequest):
        scan_model(Path("models"), name)


def test_one_broken_model_says_why_without_its_path(tmp_path: Path) -> None:
    write_model(tmp_path, "m", "runtime = 'x'\ny = 1")
    with pytest.raises(ManifestError) as caught:
        scan_model(tmp_path, "m")
    assert len(caught.value.problems) == 4
    assert str(tmp_path) not in str(caught.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_folder_is_broken(tmp_path: Path) -> None:
    folder = write_model(tmp_path, "m")
    folder.chmod(0)
    try:
        reason = scan(tmp_path).broken["m"]
    finally:
        folder.chmod(0o700)
    assert "Permission denied" in reason
    assert str(tmp_path) not in reason
