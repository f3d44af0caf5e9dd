"""Names and versions that clients send. Everything here is decided from the text alone, before any path is built."""

import re

from moorage.domain.errors import InvalidRequest
from moorage.repository.quoting import shown

MAX_VERSION = 2**31

_MODEL_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_VERSION = re.compile(r"[1-9][0-9]{0,9}")

EXPECTED_MODEL_NAME = "1 to 128 of A-Z a-z 0-9 _ . -, starting with a letter, a digit or _, without '..'"
_EXPECTED_VERSION = f"a whole number from 1 to {MAX_VERSION} without sign or leading zeros, or nothing for the latest"


def is_model_name(name: str) -> bool:
    """Whether a model may be called this. Such a name is one plain part of a path, never above or beside it."""
    return _MODEL_NAME.fullmatch(name) is not None and ".." not in name


def check_model_name(name: str, field: str = "model_name") -> str:
    """The name, unchanged.

    Raises InvalidRequest, naming `field`, where no model can have that name.
    """
    if not is_model_name(name):
        raise InvalidRequest(field, expected=EXPECTED_MODEL_NAME, got=shown(name))
    return name


def version_number(text: str) -> int | None:
    """The version that a text (a folder's name, a client's field) stands for, or None where it is no version."""
    if _VERSION.fullmatch(text) is None:
        return None
    version = int(text)
    return version if version <= MAX_VERSION else None


def parse_version(text: str, field: str = "model_version") -> int | None:
    """A version from the wire; None, from an empty text, stands for the latest.

    Raises InvalidRequest, naming `field`.
    """
    if not text:
        return None
    version = version_number(text)
    if version is None:
        raise InvalidRequest(field, expected=_EXPECTED_VERSION, got=shown(text))
    return version
