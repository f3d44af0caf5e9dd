"""Where the server remembers what it measured of models."""

import os
from pathlib import Path

from moorage.repository.quoting import shown

EXPECTED_FOOTPRINTS = 'the path of a file, or "off"'


def parse_footprints(value: object) -> Path | None:
    """The file that a text names; None for "off". A relative path counts from the working directory.

    Raises ValueError, saying what was expected and what came.
    """
    if value is None or value == "off":
        return None
    if not isinstance(value, str | Path) or not str(value) or "\0" in str(value):
        raise ValueError(f"expected {EXPECTED_FOOTPRINTS}, got {shown(value)}")
    return Path(value)


def default_footprints() -> Path | None:
    """$XDG_STATE_HOME/moorage/footprints.sqlite3, below ~/.local/state where that is not set; None without a home."""
    folder = _state_home()
    return folder / "moorage" / "footprints.sqlite3" if folder else None


def _state_home() -> Path | None:
    folder = Path(os.environ.get("XDG_STATE_HOME", ""))
    if folder.is_absolute():  # any other is to be ignored, by the specification of these folders
        return folder
    try:
        return Path.home() / ".local" / "state"
    except RuntimeError:  # a user without an entry in the system's list, as containers have
        return None
