"""`moorage serve`: what it hands to the server, and how it fails. The server itself is played here."""

import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from moorage.cli.application import application
from moorage.cli.serve import overrides
from moorage.rpc.environment import prepare_grpc


class PlayedConfigError(Exception):
    """Stands for the server's own."""


@dataclass(frozen=True)
class PlayedStart:
    """What the server says of its start."""

    grpc_address: str = "127.0.0.1:8001"
    http_address: str | None = None
    repository: str = "a folder/of [models]"
    devices: tuple[tuple[str, int], ...] = (("cpu", 2 << 30),)
    models: tuple[str, ...] = tuple(f"model_{number}/1" for number in range(40))
    broken: tuple[tuple[str, str], ...] = (("bad", "no\nversion folder"),)


@dataclass
class Played:
    """The rooms below, and what they were given."""

    given: tuple[Path | None, dict[str, Any]] | None = None
    config_error: str = ""
    start_error: OSError | None = None

    def load_settings(self, path: Path | None, given: dict[str, Any]) -> str:
        if self.config_error:
            raise PlayedConfigError(self.config_error)
        self.given = (path, given)
        return "settings"

    def run(self, settings: str, *, on_started: Callable[[PlayedStart], None]) -> int:
        assert settings == "settings"
        if self.start_error is not None:
            raise self.start_error
        on_started(PlayedStart())
        return 0


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Played:
    played = Played()
    app, config = ModuleType("moorage.app"), ModuleType("moorage.config")
    app.__dict__.update(run=played.run)
    config.__dict__.update(load_settings=played.load_settings, ConfigError=PlayedConfigError)
    monkeypatch.setitem(sys.modules, "moorage.app", app)
    monkeypatch.setitem(sys.modules, "moorage.config", config)
    for name in ("GRPC_EXPERIMENTS", "GRPC_ENABLE_FORK_SUPPORT"):
        monkeypatch.setenv(name, "")  # so that what is set here is undone
        monkeypatch.delenv(name)
    return played


def serve(*arguments: str) -> Result:
    return CliRunner().invoke(application, ("serve", *arguments))


def test_it_hands_over_the_options_and_prints_what_is_served(played: Played) -> None:
    result = serve("--config", "m.toml", "--models", "dir", "--grpc", "h:1", "--http", "off", "--budget", "2GiB")
    assert result.exit_code == 0, result.output
    assert played.given == (
        Path("m.toml"),
        {
            "server": {"grpc": "h:1", "http": "off"},
            "repository": {"path": "dir"},
            "devices": {"cpu": {"budget": "2GiB"}},
        },
    )
    lines = result.stdout.splitlines()
    assert lines[:4] == [
        "gRPC  127.0.0.1:8001",
        "HTTP  off",
        "Repository  a folder/of [models]",
        "Budget  cpu 2 GiB",
    ]
    assert lines[4].endswith("model_39/1")
    assert lines[5:] == ["Broken  bad: no version folder"]
    assert re.search(r"gRPC\s+(\S+:\d+)", result.stdout)


def test_what_is_not_given_is_not_overridden(played: Played) -> None:
    serve()
    assert played.given == (None, {})
    assert overrides(models=None, grpc="h:1", http=None, budget=None) == {"server": {"grpc": "h:1"}}


def test_a_wrong_configuration_is_2(played: Played) -> None:
    played.config_error = "m.toml: server.grpc: expected HOST:PORT, got 'x'\nm.toml: server.grce_s: unknown key"
    result = serve()
    assert result.exit_code == 2
    assert result.stderr == f"error: {played.config_error.replace(chr(10), '; ')}\n"


def test_an_address_that_is_taken_is_1(played: Played) -> None:
    played.start_error = OSError(98, "Address already in use")
    result = serve()
    assert result.exit_code == 1
    assert result.stderr == "error: [Errno 98] Address already in use\n"


def test_without_the_extra_it_says_what_to_install(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    class Missing(ModuleType):
        def __getattr__(self, name: str) -> Any:
            raise ModuleNotFoundError("No module named 'pydantic'", name="pydantic")

    monkeypatch.setitem(sys.modules, "moorage.config", Missing("moorage.config"))
    result = serve()
    assert result.exit_code == 1
    assert result.stderr == "error: to serve: pip install 'moorage[server]' (the package pydantic is missing)\n"


def test_grpc_is_prepared_but_the_user_has_the_last_word(played: Played) -> None:
    os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "1"
    prepare_grpc()
    assert os.environ["GRPC_EXPERIMENTS"] == "-event_engine_listener"
    assert os.environ["GRPC_ENABLE_FORK_SUPPORT"] == "1"
