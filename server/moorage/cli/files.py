"""Reads the files that hold inputs."""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from moorage.cli.arrays import InputError
from moorage.cli.terminal import WRONG_USAGE, fail
from moorage_client.tensors import Array

_NPY_MAGIC = b"\x93NUMPY"


def read_json(json_file: str) -> dict[str, Any]:
    """The inputs by name; "-" is stdin. Raises InputError."""
    where = "stdin" if json_file == "-" else json_file
    try:
        text = sys.stdin.read() if json_file == "-" else Path(json_file).read_text(encoding="utf-8")
        document = json.loads(text, parse_float=finite, parse_constant=refuse_constant)
    except OSError as error:
        raise InputError(f"--json: {where}: {error.strerror}") from error
    except ValueError as error:  # also UnicodeDecodeError
        raise InputError(f"--json: {where}: {error}") from error
    except RecursionError as error:
        raise InputError(f"--json: {where}: nested too deeply") from error
    if isinstance(document, dict) and isinstance(document.get("inputs"), dict):
        document = document["inputs"]
    if not isinstance(document, dict):
        raise InputError(f"--json: {where}: expected an object of inputs by name, got {type(document).__name__}")
    return document


def read_npy(name: str, path: Path) -> Array:
    """The array in a .npy file. Raises InputError."""
    where = f"--npy {name}: {path}"
    try:
        with path.open("rb") as file:
            # Looked at here: np.load takes whatever is no .npy file for a pickle, and advises to allow those.
            if file.read(len(_NPY_MAGIC)) != _NPY_MAGIC:
                raise InputError(f"{where}: is no .npy file")
            file.seek(0)
            array: Array = np.lib.format.read_array(file, allow_pickle=False)
    except OSError as error:
        raise InputError(f"{where}: {error.strerror or error}") from error
    except (ValueError, EOFError) as error:
        raise InputError(f"{where}: is damaged, or holds Python objects, which are not read") from error
    except MemoryError as error:
        raise InputError(f"{where}: does not fit into memory") from error
    return array


def named_files(option: str, entries: Iterable[str]) -> list[tuple[str, Path]]:
    """What an option's NAME=FILE stand for. Any other ends the command."""
    named = []
    for entry in entries:
        name, separator, path = entry.partition("=")
        if not (name and separator and path):
            fail(f"{option}: expected NAME=FILE, got '{entry}'", WRONG_USAGE)
        named.append((name, Path(path)))
    return named


def finite(text: str) -> float:
    """Python would read 1e400 as Infinity: a typing error would become a number that is not in the file."""
    value = float(text)
    if value in {float("inf"), float("-inf")}:
        raise ValueError(f"{text} is larger than any finite number here")
    return value


def refuse_constant(name: str) -> NoReturn:
    """NaN and Infinity, which Python's JSON has and JSON has not."""
    raise ValueError(f"JSON has no {name}; --npy takes what is not finite")
