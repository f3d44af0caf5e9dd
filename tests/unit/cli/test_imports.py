"""The command line is light: help needs no framework, and importing it loads no gRPC, so that serve can prepare it."""

import subprocess
import sys

import pytest

HEAVY = ["torch", "starlette", "uvicorn", "grpc", "numpy", "moorage_client", "msgspec", "moorage.app", "moorage.config"]


def heavy_after(statement: str, *arguments: str) -> set[str]:
    """The heavy modules, pydantic among them, that are loaded after the statement has run in a new process."""
    script = (
        "import sys\n"
        f"sys.argv = ['moorage', *{arguments!r}]\n"
        "try:\n"
        f"    {statement}\n"
        "except SystemExit: pass\n"
        f"print(*[name for name in {[*HEAVY, 'pydantic']!r} if name in sys.modules], file=sys.stderr)"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=30)
    return set(run.stderr.splitlines()[-1].split())


def test_importing_the_command_line_loads_nothing_heavy() -> None:
    assert heavy_after("import moorage.cli, moorage.cli.application") == set()


@pytest.mark.parametrize(
    "command", [(), ("models",), ("models", "policy"), ("infer",), ("serve",), ("explain",), ("estimates",), ("hold",)]
)
def test_help_loads_nothing_heavy(command: tuple[str, ...]) -> None:
    # Typer, from 0.29 on, converts options with pydantic itself.
    assert heavy_after("import moorage.cli; moorage.cli.main()", *command, "--help") <= {"pydantic"}


def test_the_module_is_the_command() -> None:
    command = [sys.executable, "-m", "moorage", "--version"]
    run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    assert run.stdout.split()[0] == "moorage"
