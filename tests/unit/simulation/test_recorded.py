"""Recorded traces."""

from pathlib import Path

import pytest

from moorage.simulation.arrivals import Traffic
from moorage.simulation.fleet import assemble
from moorage.simulation.reading import ScenarioError
from moorage.simulation.recorded import read_trace
from moorage.simulation.scenario import RecordedRequest
from tests.support.scenarios import scenario

HEADER = "time_s,model,rows,priority\n"
SCENARIO = """
[[devices]]
name = "cpu"
capacity = "1 GB"
[[models]]
name = "m"
weights = 1000
run_s = 1
[[arrivals]]
pattern = "trace"
file = "trace.csv"
"""


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "trace.csv"
    file.write_text(text)
    return file


def test_a_trace_is_read(tmp_path: Path) -> None:
    trace = read_trace(written(tmp_path, HEADER + "0,m,1,\n\n0.5,n,2,4\n"))
    assert trace.requests == (RecordedRequest(0.0, "m", 1, 0), RecordedRequest(0.5, "n", 2, 4))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: expected time_s,model,rows,priority, got ''"),
        ("time,model\n", "line 1: expected time_s,model,rows,priority"),
        (HEADER + "0,m,1\n", "line 2: expected 4 columns, got 3"),
        (HEADER + "0,m,1,1\nnan,m,1,1\n", "line 3: time_s: expected seconds from 0, got 'nan'"),
        (HEADER + "x,m,1,1\n", "line 2: time_s: expected seconds from 0, got 'x'"),
        (HEADER + "0,m,0,1\n", "line 2: rows: expected a whole number from 1 to 1000000000, got '0'"),
        (HEADER + "0,m,1,6\n", "line 2: priority: expected a whole number from 0 to 5, got '6'"),
        (HEADER + "1,m,1,1\n0,m,1,1\n", "expected times that never fall, got 0.0 after 1.0"),
    ],
)
def test_what_is_said_about_a_wrong_one(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ScenarioError) as raised:
        read_trace(written(tmp_path, text))
    assert message in str(raised.value)


def test_a_trace_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="cannot be read"):
        scenario(SCENARIO, tmp_path)


def test_a_trace_is_played_as_it_stands(tmp_path: Path) -> None:
    written(tmp_path, HEADER + "0.25,m,1,\n0.5,m,1,2\n")
    recorded = scenario(SCENARIO, tmp_path)
    traffic = Traffic(recorded, assemble(recorded))
    (first,) = traffic.first()
    second = traffic.after_arrival(first)
    assert second is not None
    assert [(it.time_s, it.model, it.rows, it.priority) for it in (first, second)] == [(0.25, 0, 1, 0), (0.5, 0, 1, 2)]
    assert traffic.after_arrival(second) is None


@pytest.mark.parametrize(
    ("line", "message"),
    [("0,n,1,\n", "model: expected the name of a model, got 'n'"), ("0,m,2,\n", "rows: expected at most 1, got 2")],
)
def test_a_trace_has_to_fit_the_models(tmp_path: Path, line: str, message: str) -> None:
    written(tmp_path, HEADER + line)
    recorded = scenario(SCENARIO, tmp_path)
    with pytest.raises(ScenarioError, match=message):
        Traffic(recorded, assemble(recorded))
