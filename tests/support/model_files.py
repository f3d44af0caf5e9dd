"""Loads the example models from their model.py, without a server."""

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import Tensor

from moorage.authoring import Batch, BatchMember, Model, ModelContext

EXAMPLE_MODELS = Path(__file__).resolve().parents[2] / "examples" / "models"


def load_example(name: str) -> Model:
    """The model in examples/models/<name>/1, loaded on the CPU."""
    folder = EXAMPLE_MODELS / name / "1"
    model = model_class(import_file(folder / "model.py"))()
    model.load(ModelContext(name=name, version=1, device="cpu", path=folder, parameters={}))
    return model


def import_file(path: Path) -> ModuleType:
    """The module in a file, under a name that no other file shares."""
    spec = importlib.util.spec_from_file_location(f"example_{path.parts[-3]}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def model_class(module: ModuleType) -> type[Model]:
    """The one subclass of Model that the module defines."""
    (found,) = (
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Model) and value.__module__ == module.__name__
    )
    return found


def infer(model: Model, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """One run with all rows from one caller. inputs: tensors and flat lists of bytes, as a runtime hands them in."""
    rows = len(next(iter(inputs.values())))
    shapes = {name: tuple(getattr(value, "shape", (rows, 1))) for name, value in inputs.items()}
    batch = Batch(requests=(BatchMember(id="", rows=rows, parameters={}),), rows=rows, shapes=shapes)
    return model.infer(inputs, batch)


def rows_of(tensor: Tensor) -> list[Tensor]:
    """Each row as a batch of one."""
    return [tensor[row : row + 1] for row in range(len(tensor))]
