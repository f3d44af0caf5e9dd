"""The tables [[warmup]] in model.toml."""

from pathlib import Path

import pytest

from moorage.domain.model import Fill, WarmupInput, WarmupRun
from moorage.domain.tensor import Datatype
from moorage.repository.errors import ManifestError
from moorage.repository.files import FileSummary
from moorage.repository.manifest import parse_manifest
from moorage.repository.specs import spec_of

MODEL = """
runtime = "simulated"
max_batch_size = {rows}
inputs = [
    {{ name = "text", datatype = "BYTES", shape = [1] }},
    {{ name = "audio", datatype = "FP32", shape = [-1] }},
    {{ name = "choices", datatype = "UINT8", shape = [2], optional = true }},
]
outputs = [{{ name = "y", datatype = "FP32", shape = [4] }}]
"""
AUDIO = "audio = { shape = [4] }"


def runs(tables: str, max_batch_size: int = 8) -> tuple[WarmupRun, ...]:
    manifest = parse_manifest((MODEL.format(rows=max_batch_size) + tables).encode(), "any")
    return spec_of(manifest, "any", 1, Path("any/1"), FileSummary("", 0)).warmup


def problems(tables: str, max_batch_size: int = 8) -> tuple[str, ...]:
    with pytest.raises(ManifestError) as caught:
        runs(tables, max_batch_size)
    return tuple(problem.removeprefix("model.toml: ") for problem in caught.value.problems)


def test_every_key_reaches_the_spec() -> None:
    table = """
        [[warmup]]
        rows = 8
        count = 2
        inputs = { text = { values = ["a", "b"] }, audio = { shape = [9], fill = "random" } }
        [[warmup]]
        rows = 1
        [warmup.inputs]
        audio = { shape = [0], fill = "zeros" }
        choices = { values = [0, 255] }
    """
    text = WarmupInput("text", Datatype.BYTES, (1,))
    assert runs(table) == (
        WarmupRun(
            8,
            2,
            (
                WarmupInput("text", Datatype.BYTES, (1,), values=("a", "b")),
                WarmupInput("audio", Datatype.FP32, (9,), Fill.RANDOM),
            ),
        ),
        WarmupRun(
            1,
            1,
            (
                text,
                WarmupInput("audio", Datatype.FP32, (0,)),
                WarmupInput("choices", Datatype.UINT8, (2,), values=(0, 255)),
            ),
        ),
    )


def test_there_is_none_by_default() -> None:
    assert runs("") == ()


@pytest.mark.parametrize(("max_batch_size", "rows"), [(0, ""), (0, "rows = 0"), (8, ""), (8, "rows = 1")])
def test_it_has_one_row_by_default(max_batch_size: int, rows: str) -> None:
    (run,) = runs(f"[[warmup]]\n{rows}\ninputs = {{ {AUDIO} }}", max_batch_size)
    assert run.rows == 1


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ("rows = 9", "warmup[0].rows: expected rows from 1 to max_batch_size = 8, got 9"),
        ("rows = 0", "warmup[0].rows: expected rows from 1 to max_batch_size = 8, got 0"),
        ("rows = -1", "warmup[0].rows: expected rows from 0 to 1048576, got -1"),
        ("rows = 1.0", "warmup[0].rows: expected rows from 0 to 1048576, got 1.0"),
        ("count = 0", "warmup[0].count: expected times from 1 to 100, got 0"),
        ("count = 101", "warmup[0].count: expected times from 1 to 100, got 101"),
        ("row = 1", "warmup[0]: unknown key 'row', did you mean 'rows'?"),
        ("inputs.texte = { }", "warmup[0].inputs: unknown key 'texte', did you mean 'text'?"),
        ("inputs.text = { value = 'x' }", "warmup[0].inputs.text: unknown key 'value', did you mean 'values'?"),
        ("inputs.text = 'x'", "warmup[0].inputs.text: expected a table by inputs' names, each such as { shape = [3]"),
        ("inputs.text = { values = [] }", "warmup[0].inputs.text.values: expected a list of numbers, strings, or true"),
        ("inputs.text = { values = 'x' }", "warmup[0].inputs.text.values: expected a list of numbers, strings, or tru"),
        ("inputs.text = { values = [['x']] }", "warmup[0].inputs.text.values: expected a list of numbers, strings, or"),
        ("inputs.text = { values = [1] }", "warmup[0].inputs.text.values[0]: expected a string, got 1"),
        ("inputs.text = { values = ['a', 'b'] }", "warmup[0].inputs.text.values: expected at most 1, which fill the r"),
        ("inputs.text = { shape = [2] }", "warmup[0].inputs.text.shape: expected [1] with a size for each -1, got [2]"),
        ("inputs.text = { fill = 'random' }", "warmup[0].inputs.text.fill: expected zeros for BYTES, or values, got '"),
        ("inputs.text = { fill = 'ones' }", "warmup[0].inputs.text.fill: expected one of zeros, random, got 'ones'"),
        (
            "inputs.text = { fill = 'zeros', values = ['a'] }",
            "warmup[0].inputs.text: expected fill or values, got both",
        ),
        ("inputs.choices = { values = [256] }", "warmup[0].inputs.choices.values[0]: expected an int from 0 to 255, g"),
        ("inputs.choices = { values = [1, -1] }", "warmup[0].inputs.choices.values[1]: expected an int from 0 to 255"),
        ("inputs.choices = { values = [true] }", "warmup[0].inputs.choices.values[0]: expected an int from 0 to 255, "),
        ("inputs.choices = { values = [1.0] }", "warmup[0].inputs.choices.values[0]: expected an int from 0 to 255, g"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_named(table: str, problem: str) -> None:
    (line,) = problems(f"[[warmup]]\ninputs.{AUDIO}\n{table}")
    assert line.startswith(problem)


@pytest.mark.parametrize(
    ("audio", "problem"),
    [
        ("", "warmup[0].inputs.audio.shape: expected [-1] with a size for each -1, got nothing"),
        ("audio = { fill = 'zeros' }", "warmup[0].inputs.audio.shape: expected [-1] with a size for each -1, got noth"),
        ("audio = { shape = [-1] }", "warmup[0].inputs.audio.shape[0]: expected a list of sizes, each at least 0, got"),
        ("audio = { shape = [1, 2] }", "warmup[0].inputs.audio.shape: expected [-1] with a size for each -1, got [1, "),
        ("audio = { shape = [1], values = [4e38] }", "warmup[0].inputs.audio.values[0]: expected a number from -3.402"),
        ("audio = { shape = [1], values = [nan] }", "warmup[0].inputs.audio.values[0]: expected a number from -3.4028"),
        ("audio = { shape = [2147483647] }", "warmup[0].inputs: expected at most 4294967296 bytes together, got 85899"),
    ],
)  # fmt: skip
def test_a_size_that_is_not_declared_is_required(audio: str, problem: str) -> None:
    (line,) = problems(f"[[warmup]]\ninputs = {{ {audio} }}")
    assert line.startswith(problem)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("warmup = 3", "warmup: expected at most 32 tables [[warmup]], got 3"),
        ("[warmup]", "warmup: expected at most 32 tables [[warmup]], got {}"),
        (f"[[warmup]]\ninputs = {{ {AUDIO} }}\n" * 33, "warmup: expected at most 32 tables [[warmup]], got [{'inputs'"),
        (
            f"[[warmup]]\nrows = 4\ninputs = {{ {AUDIO} }}\n[memory]\nlimit = 15\nworkspace_per_row = 4",
            "warmup[0].rows: expected a run of at most memory.limit = 15 bytes, got 4 rows, which take 16 by workspace",
        ),
    ],
)
def test_the_whole_must_be_possible(text: str, problem: str) -> None:
    (line,) = problems(text)
    assert line.startswith(problem)


def test_no_rows_without_a_batch_axis() -> None:
    (line,) = problems(f"[[warmup]]\nrows = 2\ninputs = {{ {AUDIO} }}", max_batch_size=0)
    assert line == "warmup[0].rows: expected none where max_batch_size is 0, got 2"
