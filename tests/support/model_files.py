"""Loads the example models from their model.py, without a server."""

import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import Tensor

from moorage.authoring import Batch, BatchMember, Loadable, Model, ModelContext, StartingRequest, SteppedModel

EXAMPLE_MODELS = Path(__file__).resolve().parents[2] / "examples" / "models"


def load_example(name: str) -> Loadable:
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


def model_class(module: ModuleType) -> type[Loadable]:
    """The one model that the module defines."""
    (found,) = (
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Loadable) and value.__module__ == module.__name__
    )
    return found


def infer(model: Loadable, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """One run with all rows from one caller. inputs: tensors and flat lists of bytes, as a runtime hands them in."""
    if isinstance(model, SteppedModel):
        (outputs,) = infer_together(model, [inputs])
        return outputs
    assert isinstance(model, Model)
    rows = len(next(iter(inputs.values())))
    shapes = {name: tuple(getattr(value, "shape", (rows, 1))) for name, value in inputs.items()}
    batch = Batch(requests=(BatchMember(id="", rows=rows, parameters={}),), rows=rows, shapes=shapes)
    return model.infer(inputs, batch)


def infer_together(
    model: SteppedModel, requests: Sequence[Mapping[str, Any]], joining_at: Sequence[int] = ()
) -> list[Mapping[str, Any]]:
    """The answers to several requests, of which each joins at a step of its own; by default all at the first."""
    waiting = dict(enumerate(requests))
    states: dict[int, Any] = {}
    answers: dict[int, Mapping[str, Any]] = {}
    step = 0
    while waiting or states:
        for index in [index for index in waiting if not joining_at or joining_at[index] <= step]:
            states[index] = _start(model, waiting.pop(index))
        answers.update(_one_step(model, states) if states else ())
        step += 1
    return [answers[index] for index in range(len(requests))]


def _start(model: SteppedModel, inputs: Mapping[str, Any]) -> Any:
    shapes = {name: tuple(value.shape) for name, value in inputs.items()}
    rows = next(iter(shapes.values()))[0]
    return model.start(inputs, StartingRequest(id="", rows=rows, parameters={}, shapes=shapes))


def _one_step(model: SteppedModel, states: dict[int, Any]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The answers of those that are done, which leave."""
    for index, step in zip(list(states), model.step(list(states.values())), strict=True):
        if step.done:
            assert step.outputs is not None
            del states[index]
            yield index, step.outputs


def rows_of(tensor: Tensor) -> list[Tensor]:
    """Each row as a batch of one."""
    return [tensor[row : row + 1] for row in range(len(tensor))]
