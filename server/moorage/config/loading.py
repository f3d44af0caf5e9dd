"""From moorage.toml, the environment and the command line to Settings; an error names its source, key and value."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from moorage.config.environment import environment_settings, unknown_variables, variable_name
from moorage.config.settings import Settings
from moorage.repository.problems import Location, Problem, problems_in
from moorage.repository.toml import TomlError, parse_toml

MAX_CONFIG_BYTES = 1024 * 1024


class ConfigError(Exception):
    """The settings are wrong, and nothing was started. The message has one line per problem."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


class _Sources(NamedTuple):
    file: dict[str, Any]
    environment: dict[str, Any]
    overrides: dict[str, Any]

    def merged(self) -> dict[str, Any]:
        return _merge(_merge(self.file, self.environment), self.overrides)

    def origin(self, location: Location, file_name: str) -> str:
        """Who set the key: the strongest source that has it, else the file, where it could be set."""
        if _has(self.overrides, location):
            return "command line"
        if _has(self.environment, location):
            return f"environment variable {variable_name(location)}"
        return file_name


def load_settings(path: Path | None, overrides: Mapping[str, Any] | None = None) -> Settings:
    """Settings from a file (None: no file), over it MOORAGE_* variables, over both the command line.

    overrides: tables as in moorage.toml, e.g. {"server": {"grpc": "0.0.0.0:8001"}}; a None in it sets nothing.
    Raises ConfigError.
    """
    unknown = unknown_variables(os.environ)
    if unknown:
        raise ConfigError(unknown)
    file = _read(path) if path is not None else {}
    sources = _Sources(file, environment_settings(), _without_none(overrides or {}))
    try:
        return Settings(**sources.merged())
    except ValidationError as error:
        file_name = str(path) if path is not None else "settings"
        raise ConfigError(_lines(problems_in(error, Settings), sources, file_name)) from None


def _lines(problems: Sequence[Problem], sources: _Sources, file_name: str) -> list[str]:
    return [f"{sources.origin(problem.location, file_name)}: {problem.text}" for problem in problems]


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_CONFIG_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError([f"{path}: cannot be read: {reason}"]) from None
    if len(content) > MAX_CONFIG_BYTES:
        raise ConfigError([f"{path}: expected at most {MAX_CONFIG_BYTES} bytes, got more"])
    try:
        return parse_toml(content)
    except TomlError as error:
        raise ConfigError([f"{path}: {error}"]) from None


def _merge(weaker: Mapping[str, Any], stronger: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(weaker)
    for key, value in stronger.items():
        beneath = merged.get(key)
        if isinstance(beneath, Mapping) and isinstance(value, Mapping):
            merged[key] = _merge(beneath, value)
        else:
            merged[key] = value
    return merged


def _without_none(table: Mapping[str, Any]) -> dict[str, Any]:
    pruned = {key: _without_none(value) if isinstance(value, Mapping) else value for key, value in table.items()}
    return {key: value for key, value in pruned.items() if value is not None and value != {}}


def _has(table: object, location: Location) -> bool:
    for part in location:
        if not isinstance(table, Mapping) or part not in table:
            return False
        table = table[part]
    return bool(location)
