"""profile.json beside a version's files: what `moorage profile` measured there, by kind of device. It is JSON, so that
other programs can read it; people may write it, so it is checked."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from moorage.domain.model import ProfiledRun
from moorage.repository.errors import ManifestError
from moorage.repository.files import PROFILE_FILE, contained, exists
from moorage.repository.problems import problems_in
from moorage.repository.quantities import MAX_BYTES
from moorage.repository.tables import MAX_ROWS, MAX_SECONDS, Table

MAX_PROFILE_BYTES = 1024 * 1024
MAX_RUNS = 1000
_MAX_DEVICES = 16
_FORMAT = 1
_EXPECTED_BYTES = f"bytes from 0 to {MAX_BYTES}"

_WholeBytes = Annotated[int, Field(strict=True, ge=0, le=MAX_BYTES)]


class _RunTable(Table):
    rows: int = Field(strict=True, ge=1, le=MAX_ROWS, description=f"rows from 1 to {MAX_ROWS}")
    row_bytes: _WholeBytes = Field(description=_EXPECTED_BYTES)
    peak_bytes: _WholeBytes = Field(description=_EXPECTED_BYTES)
    reserved_bytes: _WholeBytes | None = Field(default=None, description=_EXPECTED_BYTES)
    seconds: float = Field(
        strict=True, ge=0, le=MAX_SECONDS, allow_inf_nan=False, description=f"seconds from 0 to {MAX_SECONDS:.0f}"
    )


class _DeviceTable(Table):
    runs: tuple[_RunTable, ...] = Field(max_length=MAX_RUNS, description=f"a list of at most {MAX_RUNS} runs")


class _ProfileFile(Table):
    format: int = Field(strict=True, ge=_FORMAT, le=_FORMAT, description=f"{_FORMAT}")
    devices: dict[str, _DeviceTable] = Field(
        default_factory=dict, max_length=_MAX_DEVICES, description="a table by kind of device, such as cpu or cuda"
    )


_READER: TypeAdapter[Any] = TypeAdapter(dict[str, Any])


def read_profiles(root: Path, folder: Path) -> Mapping[str, tuple[ProfiledRun, ...]]:
    """The profiles in a resolved version folder, by kind of device; nothing where there is no such file.

    Raises ManifestError for a file that makes no sense or leaves the root, OSError.
    """
    if not exists(folder / PROFILE_FILE):
        return {}
    path = contained(root, folder / PROFILE_FILE, PROFILE_FILE)
    if not path.is_file():
        raise ManifestError([f"{PROFILE_FILE}: expected a plain file"])
    with path.open("rb") as file:
        content = file.read(MAX_PROFILE_BYTES + 1)
    if len(content) > MAX_PROFILE_BYTES:
        raise ManifestError([f"{PROFILE_FILE}: expected at most {MAX_PROFILE_BYTES} bytes, got more"])
    return parse_profiles(content)


def parse_profiles(content: bytes) -> Mapping[str, tuple[ProfiledRun, ...]]:
    """What stands in a file. Raises ManifestError with one line per problem."""
    try:
        told = _ProfileFile.model_validate(_READER.validate_json(content))
    except ValidationError as error:
        if error.title != _ProfileFile.__name__:
            raise ManifestError([f"{PROFILE_FILE}: expected a JSON object, got something else"]) from None
        raise ManifestError(
            [f"{PROFILE_FILE}: {problem.text}" for problem in problems_in(error, _ProfileFile)]
        ) from None
    return {kind: tuple(map(_profiled, table.runs)) for kind, table in told.devices.items()}


def _profiled(table: _RunTable) -> ProfiledRun:
    return ProfiledRun(table.rows, table.row_bytes, table.peak_bytes, table.reserved_bytes, table.seconds)


def write_profile(folder: Path, kind: str, runs: tuple[ProfiledRun, ...]) -> Path:
    """Keep what was measured on one kind of device, beside what is known of others; where it is now.

    All or nothing is written. Raises OSError, and ManifestError where the file that is there makes no sense.
    """
    path = folder / PROFILE_FILE
    known = dict(parse_profiles(path.read_bytes())) if path.exists() else {}
    known[kind] = runs
    devices = {name: {"runs": [_as_json(run) for run in known[name]]} for name in sorted(known)}
    beside = path.with_name(f".{PROFILE_FILE}.{os.getpid()}")
    try:
        beside.write_text(json.dumps({"format": _FORMAT, "devices": devices}, indent=2) + "\n", encoding="utf-8")
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
    return path


def _as_json(run: ProfiledRun) -> dict[str, int | float | None]:
    return {
        "rows": run.rows,
        "row_bytes": run.row_bytes,
        "peak_bytes": run.peak_bytes,
        "reserved_bytes": run.reserved_bytes,
        "seconds": run.seconds,
    }
