"""`moorage profile` of the examples: at the sizes that were not profiled it is off by a tenth at most.

`python -m tests.integration.memory.profiles` takes three profiles of each, which takes some minutes.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

EXAMPLES = Path(__file__).parents[3] / "examples" / "models"
MODELS: dict[str, list[str]] = {
    "identity": [],
    "mlp": [],
    "embedder": ["--text", "a short text", "--text", "the tide comes in and the tide goes out, " * 20],
    "vad": ["--shape", "audio=48000"],
}
TIMES = 3
MOST_PERCENT = 10


def errors_percent(model: str, options: list[str], models: Path) -> list[int]:
    """Of one profile, as it is printed: by how much it foresaw too much or too little of the runs that check it."""
    command = [sys.executable, "-m", "moorage", "profile", model, "--models", str(models), *options]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "COLUMNS": "200"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return [int(found) for found in re.findall(r"([+-]\d+)%", done.stdout)]


def main() -> int:
    worst: list[int] = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(TIMES):
            for model, options in MODELS.items():
                copied = Path(folder) / f"{model}_{number}"  # a profile of its own, of nothing that was profiled before
                shutil.copytree(EXAMPLES / model, copied / model)
                errors = errors_percent(model, options, copied)
                assert errors, f"{model}: no run checked the profile"
                sys.stdout.write(f"{model}: {', '.join(f'{error:+d} %' for error in errors)}\n")
                sys.stdout.flush()
                worst += errors
    most = max(map(abs, worst))
    sys.stdout.write(f"off by {most} % at most\n")
    return 1 if most > MOST_PERCENT else 0


if __name__ == "__main__":
    sys.exit(main())
