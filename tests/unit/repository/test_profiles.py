"""profile.json: what is written comes back, and what makes no sense is told."""

import json
from pathlib import Path
from typing import Any

import pytest

from moorage.domain.model import ProfiledRun
from moorage.repository.errors import ManifestError
from moorage.repository.profiles import MAX_PROFILE_BYTES, parse_profiles, read_profiles, write_profile
from moorage.repository.scan import scan_model
from tests.support.model_folders import write_model

RUNS = (ProfiledRun(1, 64, 4096, None, 0.25), ProfiledRun(8, 64, 32768, 65536, 1.5))
RUN: dict[str, Any] = {"rows": 1, "row_bytes": 64, "peak_bytes": 4096, "seconds": 0.25}


def profile_with(**changed: Any) -> bytes:
    runs = [{key: value for key, value in {**RUN, **changed}.items() if value != "absent"}]
    return json.dumps({"format": 1, "devices": {"cpu": {"runs": runs}}}).encode()


def test_what_was_written_comes_back_and_other_devices_stay(tmp_path: Path) -> None:
    write_profile(tmp_path, "cuda", RUNS[:1])
    path = write_profile(tmp_path, "cpu", RUNS)
    assert path == tmp_path / "profile.json"
    assert read_profiles(tmp_path, tmp_path) == {"cpu": RUNS, "cuda": RUNS[:1]}
    write_profile(tmp_path, "cpu", ())
    assert read_profiles(tmp_path, tmp_path) == {"cpu": (), "cuda": RUNS[:1]}
    assert [file.name for file in tmp_path.iterdir()] == ["profile.json"]


def test_without_a_file_there_is_no_profile(tmp_path: Path) -> None:
    assert read_profiles(tmp_path, tmp_path) == {}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "profile.json: expected a JSON object, got something else"),
        (b"[]", "profile.json: expected a JSON object, got something else"),
        (b'{"format": 2}', "profile.json: format: expected 1, got 2"),
        (b'{"devices": {}}', "profile.json: format: expected 1, got nothing"),
        (b'{"format": 1, "device": {}}', "profile.json: unknown key 'device', did you mean 'devices'?"),
        (profile_with(rows=0), "profile.json: devices.cpu.runs[0].rows: expected rows from 1 to 1048576, got 0"),
        (profile_with(rows=True), "profile.json: devices.cpu.runs[0].rows: expected rows from 1 to 1048576, got True"),
        (profile_with(peak_bytes=-1), "profile.json: devices.cpu.runs[0].peak_bytes: expected bytes from 0 to "),
        (profile_with(peak_bytes="absent"), "profile.json: devices.cpu.runs[0].peak_bytes: expected bytes from 0 to "),
        (profile_with(seconds="fast"), "profile.json: devices.cpu.runs[0].seconds: expected seconds from 0 to 604800"),
        (profile_with(rowz=1), "profile.json: devices.cpu.runs[0]: unknown key 'rowz', did you mean 'rows'?"),
    ],
)
def test_what_makes_no_sense_is_told(content: bytes, says: str) -> None:
    with pytest.raises(ManifestError) as told:
        parse_profiles(content)
    assert str(told.value).startswith(says)


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "profile.json").write_bytes(b" " * (MAX_PROFILE_BYTES + 1))
    with pytest.raises(ManifestError, match="expected at most"):
        read_profiles(tmp_path, tmp_path)


def test_a_profile_is_part_of_what_is_known_of_a_version_and_not_of_the_version(tmp_path: Path) -> None:
    folder = write_model(tmp_path, "model")
    (before,) = scan_model(tmp_path, "model")
    write_profile(folder / "1", "cpu", RUNS)
    (after,) = scan_model(tmp_path, "model")
    assert after.profiles == {"cpu": RUNS}
    assert after.fingerprint == before.fingerprint
    (folder / "1" / "profile.json").write_text("{}")
    with pytest.raises(ManifestError, match=r"profile\.json: format"):
        scan_model(tmp_path, "model")
