import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from moorage.config import Address, ConfigError, load_settings, parse_bytes
from moorage.devices.host import total_memory_bytes

WHOLE = """
[server]
grpc = "0.0.0.0:9001"
http = "off"
grace_s = 5
max_message = "1 MiB"
max_concurrent_rpcs = 16
max_stream_requests = 8
max_stream_bytes = "2 MiB"
max_queue_rows = 99
max_queue_bytes = "3 MiB"
ageing_s = 2.5
min_residency_s = 0
footprints = "state/seen.sqlite3"
[repository]
path = "zoo"
[devices.cpu]
budget = "2 GiB"
host_budget = "3 GiB"
run_slots = 8
[devices."cuda:0"]
budget = "20 GiB"
reserve = "2 GiB"
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("MOORAGE_")]:
        monkeypatch.delenv(name)


def _problems(text: str, overrides: Mapping[str, Any] | None = None) -> tuple[str, ...]:
    Path("moorage.toml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_settings(Path("moorage.toml"), overrides)
    return caught.value.problems


def test_without_a_file_everything_has_a_default() -> None:
    settings = load_settings(None)
    assert settings.server.grpc == Address("127.0.0.1", 8001)
    assert settings.server.http == Address("127.0.0.1", 8002)
    assert settings.server.max_message_bytes == 256 * 1024**2
    assert settings.server.ageing_s == 10.0
    assert settings.server.min_residency_s == 0.2
    assert settings.repository.path == Path("models")
    assert list(settings.devices) == ["cpu"]
    assert settings.devices["cpu"].budget_bytes == total_memory_bytes() // 2
    assert settings.devices["cpu"].context_bytes == 0


def test_every_key_is_read_from_the_file() -> None:
    Path("moorage.toml").write_text(WHOLE)
    settings = load_settings(Path("moorage.toml"))
    assert str(settings.server.grpc) == "0.0.0.0:9001"
    assert settings.server.http is None
    assert settings.server.grace_s == 5.0
    assert settings.server.max_message_bytes == 1024**2
    assert settings.server.max_concurrent_rpcs == 16
    assert settings.server.max_stream_requests == 8
    assert settings.server.max_stream_bytes == 2 * 1024**2
    assert settings.server.max_queue_rows == 99
    assert settings.server.max_queue_bytes == 3 * 1024**2
    assert settings.server.ageing_s == 2.5
    assert settings.server.min_residency_s == 0.0
    assert settings.server.footprints == Path("state/seen.sqlite3")
    assert settings.repository.path == Path("zoo")
    assert settings.devices["cpu"].budget_bytes == 2 * 1024**3
    assert settings.devices["cpu"].host_budget_bytes == 3 * 1024**3
    assert settings.devices["cpu"].run_slots == 8
    assert settings.devices["cuda:0"].reserve_bytes == 2 * 1024**3
    assert settings.devices["cuda:0"].context_bytes == 512 * 1024**2


def test_the_environment_wins_over_the_file_and_the_command_line_over_both(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("moorage.toml").write_text(WHOLE)
    monkeypatch.setenv("MOORAGE_SERVER__GRPC", "[::1]:0")
    monkeypatch.setenv("MOORAGE_SERVER__GRACE_S", "7.5")
    monkeypatch.setenv("MOORAGE_DEVICES__CUDA_0__BUDGET", "10GiB")
    monkeypatch.setenv("MOORAGE_REPOSITORY__PATH", "from-environment")
    overrides = {"repository": {"path": "from-command-line"}, "server": {"http": "localhost:0", "grpc": None}}
    settings = load_settings(Path("moorage.toml"), overrides)
    assert settings.server.grpc == Address("::1", 0)
    assert str(settings.server.grpc) == "[::1]:0"
    assert settings.server.grace_s == 7.5
    assert settings.server.http == Address("localhost", 0)
    assert settings.repository.path == Path("from-command-line")
    assert settings.devices["cuda:0"].budget_bytes == 10 * 1024**3
    assert settings.devices["cuda:0"].reserve_bytes == 2 * 1024**3


def test_a_budget_from_the_command_line() -> None:
    assert parse_bytes("2GiB") == 2 * 1024**3
    settings = load_settings(None, {"devices": {"cpu": {"budget": "2GiB"}}})
    assert settings.devices["cpu"].budget_bytes == 2 * 1024**3


def test_settings_are_frozen() -> None:
    settings = load_settings(None)
    with pytest.raises(ValidationError):
        settings.server.grace_s = 1.0


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[server]\ngrcp = ':1'", "moorage.toml: server: unknown key 'grcp', did you mean 'grpc'?"),
        ("[sever]", "moorage.toml: unknown key 'sever', did you mean 'server'?"),
        ("[server]\ngrpc = 'localhost'", "moorage.toml: server.grpc: expected an address"),
        ("[server]\ngrpc = 'off'", "moorage.toml: server.grpc: expected an address"),
        ("[server]\nhttp = ':8002'", "moorage.toml: server.http: expected an address"),
        ("[server]\nhttp = '1.2.3.4:65536'", "moorage.toml: server.http: expected an address"),
        ("[server]\ngrace_s = -1", "moorage.toml: server.grace_s: expected seconds from 0 to 86400, got -1"),
        ("[server]\ngrace_s = inf", "moorage.toml: server.grace_s: expected seconds from 0 to 86400, got inf"),
        ("[server]\ngrace_s = true", "moorage.toml: server.grace_s: expected a number, got True"),
        ("[server]\nageing_s = 0", "moorage.toml: server.ageing_s: expected seconds above 0, at most 86400, got 0"),
        ("[server]\nageing_s = nan", "moorage.toml: server.ageing_s: expected seconds above 0, at most 86400, got nan"),
        ("[server]\nmin_residency_s = -1", "moorage.toml: server.min_residency_s: expected seconds from 0 to 86400, g"),
        ("[server]\nfootprints = ''", 'moorage.toml: server.footprints: expected the path of a file, or "off", got '),
        ("[server]\nfootprints = false", 'moorage.toml: server.footprints: expected the path of a file, or "off"'),
        ('[server]\nfootprints = "a\\u0000b"', "moorage.toml: server.footprints: expected the path of a file, or "),
        ("[devices.cpu]\nhost_budget = -1", "moorage.toml: devices.cpu.host_budget: expected bytes such as"),
        ("[devices.cpu]\nrun_slots = 0", "moorage.toml: devices.cpu.run_slots: expected a whole number from 1 to 1024"),
        ("[devices.cpu]\nrun_slots = true", "moorage.toml: devices.cpu.run_slots: expected a number, got True"),
        ("[devices.cpu]\nrun_slots = 1025", "moorage.toml: devices.cpu.run_slots: expected a whole number from 1 to 1"),
        ("[devices.cpu]\nbudget = 'much'", "moorage.toml: devices.cpu.budget: expected bytes such as"),
        ("[server]\nmax_message = '4 GiB'", "moorage.toml: server.max_message: expected bytes such as"),
        ("[server]\nmax_concurrent_rpcs = 0", "moorage.toml: server.max_concurrent_rpcs: expected a whole number from"),
        ("[server]\nmax_stream_requests = 0", "moorage.toml: server.max_stream_requests: expected a whole number from"),
        ("[server]\nmax_queue_rows = 0", "moorage.toml: server.max_queue_rows: expected rows from 1 to 10000"),
        ("server = 1", "moorage.toml: server: expected a table, got 1"),
        ("[devices]\ncpu = 1", "moorage.toml: devices.cpu: expected a table [devices.cpu] or [devices.'cuda:N'], g"),
        ("devices = 1", "moorage.toml: devices: expected a table [devices.cpu] or [devices.'cuda:N'], got 1"),
        ("[devices.gpu]\nbudget = 1", "moorage.toml: devices.gpu: expected a table [devices.cpu] or [devices.'"),
        ('[devices."cuda:0"]', 'moorage.toml: devices."cuda:0".budget: expected bytes such as "90 MiB"'),
        ("[devices.cpu]\nbudgte = 1", "moorage.toml: devices.cpu: unknown key 'budgte', did you mean 'budget'?"),
        ("[devices.cpu]\nbudget = 5\nreserve = 5", "moorage.toml: devices.cpu: expected reserve and context together"),
        ("[server]\ngrpc = \n", "moorage.toml: line 2, column 8: Invalid value"),
    ],
)  # fmt: skip
def test_a_wrong_key_names_file_key_and_value(text: str, problem: str) -> None:
    (line,) = _problems(text)
    assert line.startswith(problem)


def test_a_cuda_device_without_a_budget_is_told_that_it_needs_one() -> None:
    (line,) = _problems('[devices."cuda:0"]')
    assert line.endswith("above 0 (a cuda device has no default yet), got nothing")


def test_every_problem_names_its_own_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOORAGE_SERVER__GRACE_S", "soon")
    problems = _problems("[server]\nmax_message = 'big'\ngrace_s = 1", {"server": {"grpc": "nowhere"}})
    assert sorted(line.split(": server.")[0] for line in problems) == [
        "command line",
        "environment variable MOORAGE_SERVER__GRACE_S",
        "moorage.toml",
    ]


@pytest.mark.parametrize("name", ["absent.toml", ".", "a\0b"])
def test_a_file_that_cannot_be_read_is_named(name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load_settings(Path(name))
