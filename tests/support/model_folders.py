"""Writes small model repositories for tests."""

from pathlib import Path

SIMULATED = """
runtime = "simulated"
max_batch_size = 8
inputs = [{ name = "x", datatype = "FP32", shape = [4] }]
outputs = [{ name = "y", datatype = "FP32", shape = [4] }]
"""

PYTHON = SIMULATED.replace("simulated", "python")


def write_model(root: Path, name: str, manifest: str = SIMULATED, *, versions: tuple[int, ...] = (1,)) -> Path:
    """A model folder with a manifest and empty version folders."""
    folder = root / name
    folder.mkdir(parents=True)
    (folder / "model.toml").write_text(manifest)
    for version in versions:
        (folder / str(version)).mkdir()
    return folder
