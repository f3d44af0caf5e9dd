"""What runtime = "python" takes for a model, before anything runs."""

from pathlib import Path

import pytest

from moorage.authoring import ModelContext
from moorage.workers.runtimes import BrokenContract, RuntimeOptions, create_runtime
from tests.support.stepped_models import CUSTOM, HALF_A_PAIR, NO_START, RUNNING, code_of
from tests.support.toy_models import ECHO

OPTIONS = RuntimeOptions((), (), batched=True)


def load(folder: Path, code: str) -> bool:
    """Whether the model turned out to be a stepped one."""
    (folder / "model.py").write_text(code_of(code))
    runtime = create_runtime("python", OPTIONS)
    runtime.load(ModelContext(name="m", version=1, device="cpu", path=folder, parameters={}))
    assert (runtime.states is not None) == runtime.stepped
    return runtime.stepped


@pytest.mark.parametrize(("code", "stepped"), [(ECHO, False), (RUNNING, True), (CUSTOM, True)])
def test_the_base_class_says_whether_a_model_is_stepped(tmp_path: Path, code: str, stepped: bool) -> None:
    assert load(tmp_path, code) is stepped


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (HALF_A_PAIR, r"class Half in model.py defines suspend, and does not define resume"),
        (HALF_A_PAIR.replace("suspend", "resume"), r"defines resume, and does not define suspend"),
        (NO_START, r"class NoStart in model.py does not define start\(inputs, request\)"),
        (NO_START.replace("step(", "start("), r"does not define step\(states\)"),
        (NO_START + ECHO, r"must define one subclass of moorage.Model or moorage.SteppedModel, found \['Echo', 'NoSt"),
    ],
)
def test_a_class_that_is_no_whole_model_is_refused(tmp_path: Path, code: str, told: str) -> None:
    with pytest.raises(BrokenContract, match=told):
        load(tmp_path, code)
