"""`moorage simulate`, as a user runs it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from moorage.cli.application import application
from moorage.scheduling.policy import POLICIES
from moorage.scheduling.scheduler import Scheduler
from tests.support.scenarios import SMALL

LIGHT = ("torch", "pydantic", "grpc", "asyncio")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    return path


def moorage(*arguments: str | Path) -> Result:
    return CliRunner().invoke(application, ["simulate", *map(str, arguments)])


def test_a_table_for_people(file: Path) -> None:
    result = moorage(file, "--policy", "moorage", "--policy", "lru")
    assert result.exit_code == 0, result.output
    lines = [line.split() for line in result.stdout.splitlines() if line.strip()]
    assert lines[0][0] == "small:"
    assert lines[1] == ["moorage", "lru"]
    assert ["requests", "400", "400"] in lines
    assert any(line[:5] == ["latency", "p50", "/", "p99,", "priority"] for line in lines)
    assert any(line[:4] == ["came", "back", "/", "Belady"] for line in lines)


def test_json_for_machines(file: Path) -> None:
    result = moorage(file, "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert [policy["policy"] for policy in report["policies"]] == ["moorage"]
    assert moorage(file, "--json").stdout == result.stdout
    assert json.loads(moorage(file, "--json", "--seed", "6").stdout)["seed"] == 6


def test_every_policy_has_its_column(file: Path) -> None:
    options = [option for name in POLICIES for option in ("--policy", name)]
    report = json.loads(moorage(file, "--json", *options).stdout)
    assert [policy["policy"] for policy in report["policies"]] == list(POLICIES)


@pytest.mark.parametrize(
    ("text", "options", "says"),
    [
        (SMALL, ("--policy", "random"), "expected one of moorage, fifo, lru, round_robin, got 'random'"),
        (SMALL.replace("run_s = 0.02", "run_s = 'long'"), (), "small.toml: models[0].run_s: expected a number above 0"),
        (SMALL.replace("clients", "callers"), (), "small.toml: arrivals[1].clients: expected a whole number"),
        ("", (), "small.toml: devices: expected an array of tables, at least one, got nothing"),
    ],
)
def test_a_mistake_is_one_line_and_2(file: Path, text: str, options: tuple[str, ...], says: str) -> None:
    file.write_text(text)
    result = moorage(file, *options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert says in result.stderr


def test_wrong_usage_is_2(tmp_path: Path) -> None:
    assert moorage().exit_code == 2
    assert moorage(tmp_path / "absent.toml").exit_code == 2


def test_a_broken_promise_is_1(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Scheduler, "handle", lambda *_: [])
    monkeypatch.setattr(Scheduler, "next_wake_s", None)
    result = moorage(file)
    assert result.exit_code == 1
    assert "nothing is going to happen" in result.stderr


def test_the_light_install_is_enough(file: Path) -> None:
    script = (
        "import sys\n"
        f"for name in {LIGHT[:3]!r}: sys.modules[name] = None\n"
        "from moorage.simulation.loading import load_scenario\n"
        "from moorage.simulation.simulate import simulate\n"
        "from moorage.simulation.tables import table\n"
        "from moorage.scheduling.policy import policy_named\n"
        "from pathlib import Path\n"
        f"table(simulate(load_scenario(Path({str(file)!r})), [policy_named('moorage')]))\n"
        "print('asyncio' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=50)
    assert done.stdout.strip() == "False"
