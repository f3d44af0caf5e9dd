"""Scenario files: what is read, and what is said about wrong ones."""

from pathlib import Path

import pytest

from moorage.simulation.loading import load_scenario
from moorage.simulation.reading import ScenarioError
from moorage.simulation.scenario import Bursts, Choice, LogUniform, Poisson, Popularity
from tests.support.scenarios import SMALL, scenario

EXAMPLES = sorted((Path(__file__).parents[3] / "examples" / "scenarios").glob("*.toml"))
LEAST = """
requests = 1
[[devices]]
name = "cpu"
capacity = "1 GB"
[[models]]
name = "m"
weights = 1000
run_s = 1
[[arrivals]]
pattern = "poisson"
rate_per_s = 2
"""


def test_defaults() -> None:
    read = scenario(LEAST)
    assert (read.seed, read.requests, read.duration_s) == (0, 1, None)
    assert (read.devices[0].count, read.devices[0].run_slots, read.devices[0].host_bytes) == (1, 1, 0)
    assert read.models[0].sizes == Choice((1000,), (1.0,))
    assert (read.models[0].steps, read.models[0].priority, read.models[0].max_batch_size) == (1, 3, 1)
    stream = read.streams[0]
    assert (stream.pattern, stream.popularity) == (Poisson(2.0), Popularity())
    assert (stream.priorities, stream.least_rows, stream.most_rows) == ({0: 1.0}, 1, 1)


def test_everything_is_read() -> None:
    read = scenario(SMALL)
    assert read.models[0].sizes == LogUniform(10**9, 6 * 10**9)
    assert read.models[1].state_bytes == 200 * 10**6
    assert read.streams[0].priorities == {1: 0.2, 3: 0.8}
    assert (read.streams[0].least_rows, read.streams[0].most_rows) == (1, 2)
    assert read.streams[0].popularity == Popularity(1.0, shift_every_requests=100, shift_share=0.5)


def test_bursts_and_limits() -> None:
    text = LEAST.replace('"poisson"', '"bursts"').replace(
        "rate_per_s = 2", "on_s = 1\noff_s = 2\non_rate_per_s = 3\n[scheduling]\nageing_s = 4"
    )
    read = scenario(text)
    assert read.streams[0].pattern == Bursts(1.0, 2.0, 3.0, 0.0)
    assert read.limits.ageing_s == 4.0


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "requests = 1",
            "",
            "requests: expected this or duration_s, as arrivals do not end by themselves, got neither",
        ),
        ("requests = 1", "requests = 0", "requests: expected a whole number from 1 to 1000000000, got 0"),
        ("requests = 1", "request = 1", "unknown key 'request', did you mean 'requests'?"),
        ("requests = 1", "requests = true", "requests: expected a whole number from 1 to 1000000000, got True"),
        ('name = "cpu"', "", "devices[0].name: expected a name of letters, digits, '_', '.', ':' and '-', got nothing"),
        ('"1 GB"', '"1,5 GB"', "devices[0].capacity: expected bytes such as"),
        ('"1 GB"', '"0 GB"', "above 0, got '0 GB'"),
        ("weights = 1000", "", "models[0].weights: expected bytes such as"),
        (
            "weights = 1000",
            'weights = { least = "2 GB", most = "1 GB" }',
            "models[0].weights.most: expected no less than",
        ),
        (
            "weights = 1000",
            "weights = { choice = [1, 2], shares = [1] }",
            "shares: expected 2 numbers, one for each size",
        ),
        ("weights = 1000", "weights = { choice = [] }", "models[0].weights.choice: expected a list, each bytes"),
        ("run_s = 1", "run_s = 0", "models[0].run_s: expected a number above 0, got 0"),
        ("run_s = 1", "run_s = nan", "models[0].run_s: expected a number above 0, got nan"),
        ("run_s = 1", "run_s = 1\nstesp = 2", "models[0]: unknown key 'stesp', did you mean 'steps'?"),
        (
            "run_s = 1",
            "run_s = 1\nsteps = 2\ninstances = 2",
            "models[0].instances: expected 1 where steps is above 1, got 2",
        ),
        ("run_s = 1", "run_s = 1\npriority = 6", "models[0].priority: expected a whole number from 1 to 5, got 6"),
        (
            '"poisson"',
            '"regular"',
            "arrivals[0].pattern: expected one of poisson, bursts, closed_loop, trace, got 'regular'",
        ),
        ("rate_per_s = 2", "", "arrivals[0].rate_per_s: expected a number above 0, got nothing"),
        (
            "rate_per_s = 2",
            "rate_per_s = 2\nrows = 2",
            "arrivals[0].rows: expected at most 1, the max_batch_size of 'm', got 2",
        ),
        (
            "rate_per_s = 2",
            "rate_per_s = 2\nrows = [2, 1]",
            "arrivals[0].rows: expected a whole number, or [least, most]",
        ),
        (
            "rate_per_s = 2",
            'rate_per_s = 2\nmodels = ["n"]',
            "arrivals[0].models: expected names of [[models]], got 'n'",
        ),
        (
            "rate_per_s = 2",
            "rate_per_s = 2\npriority = { 6 = 1 }",
            "arrivals[0].priority: expected a whole number from 1",
        ),
        (
            "rate_per_s = 2",
            "rate_per_s = 2\npopularity = { zipf = -1 }",
            "arrivals[0].popularity.zipf: expected a number",
        ),
        ("[[devices]]", "[devices]", "devices: expected an array of tables, at least one, got"),
        (
            "[[arrivals]]",
            '[[models]]\nname = "m"\nweights = 1\nrun_s = 1\n[[arrivals]]',
            "models: expected names that differ",
        ),
    ],
)
def test_what_is_said_about_a_wrong_one(old: str, new: str, message: str) -> None:
    assert old in LEAST
    with pytest.raises(ScenarioError) as raised:
        scenario(LEAST.replace(old, new, 1))
    assert message in str(raised.value)


def test_both_ways_to_shift_are_one_too_many() -> None:
    text = LEAST + "popularity = { shift_every_s = 1, shift_every_requests = 1 }"
    with pytest.raises(ScenarioError, match=r"shift_every_s: expected either this or shift_every_requests, got 1"):
        scenario(text)


@pytest.mark.parametrize("content", [b"seed = ", b"\xff", b"[[[[", b"a = 1"])
def test_an_error_names_the_file(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "wrong.toml"
    file.write_bytes(content)
    with pytest.raises(ScenarioError, match=r"wrong\.toml: "):
        load_scenario(file)


@pytest.mark.parametrize("name", ["absent.toml", "", "a\0b"])
def test_a_file_that_cannot_be_read(tmp_path: Path, name: str) -> None:
    with pytest.raises(ScenarioError, match="cannot be read"):
        load_scenario(tmp_path / name)


def test_a_seed_wins_over_the_files(tmp_path: Path) -> None:
    file = tmp_path / "least.toml"
    file.write_text(LEAST)
    assert load_scenario(file, seed=9).seed == 9
    assert load_scenario(file).name == "least"


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_the_examples_are_right(example: Path) -> None:
    assert load_scenario(example).models


def test_there_are_examples() -> None:
    assert len(EXAMPLES) == 3
