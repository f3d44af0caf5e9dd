"""NVIDIA's load generator, as it is: `make fetch-perf-analyzer`."""

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.running_server import RunningServer

ROOT = Path(__file__).resolve().parents[3]
PERF_ANALYZER = ROOT / ".cache" / "perf_analyzer" / "perf_analyzer"
RUN_LIMIT_S = 60.0

pytestmark = [
    pytest.mark.perf_analyzer,
    pytest.mark.timeout(90),
    pytest.mark.skipif(not PERF_ANALYZER.exists(), reason="no perf_analyzer here: make fetch-perf-analyzer"),
]

# Windows of a number of requests, so that a slow machine measures as much as a fast one; any three windows are stable
# enough, as speed is not what is tested here.
SHORT = [
    *("--measurement-mode", "count_windows", "--measurement-request-count", "50"),
    *("--max-trials", "3", "--stability-percentage", "1000000"),
]
SECTION = re.compile(
    r"Request concurrency: (?P<concurrency>\d+)\n"
    r".*?Client:.*?Throughput: (?P<throughput>[\d.]+) infer/sec"
    r".*?Server:.*?Inference count: (?P<inferences>\d+)"
    r".*?Execution count: (?P<executions>\d+)"
    r".*?Successful request count: (?P<successes>\d+)"
    r".*?queue (?P<queue>\d+) usec \+ compute input (?P<input>\d+) usec"
    r" \+ compute infer (?P<infer>\d+) usec \+ compute output (?P<output>\d+) usec",
    re.DOTALL,
)


@dataclass(frozen=True)
class Level:
    """What was measured at one concurrency: on the client's side, and as the server told it. Times in microseconds."""

    throughput: float
    inferences: int
    executions: int
    successes: int
    compute_us: int


def analyze(server: RunningServer, model: str, *options: str) -> dict[int, Level]:
    """Run perf_analyzer at concurrency 1 and 8."""
    command = [str(PERF_ANALYZER), "-m", model, "-i", "grpc", "-u", server.grpc, "--concurrency-range", "1:8:7"]
    outcome = subprocess.run(
        [*command, *SHORT, *options], capture_output=True, text=True, check=False, timeout=RUN_LIMIT_S
    )
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    assert not re.search("warning|error|fail", outcome.stdout + outcome.stderr, re.IGNORECASE), outcome.stdout
    assert re.findall(r"^Concurrency: (\d+), throughput: [\d.]+ infer/sec", outcome.stdout, re.MULTILINE) == ["1", "8"]
    return {int(found["concurrency"]): _level(found) for found in SECTION.finditer(outcome.stdout)}


def _level(found: re.Match[str]) -> Level:
    return Level(
        throughput=float(found["throughput"]),
        inferences=int(found["inferences"]),
        executions=int(found["executions"]),
        successes=int(found["successes"]),
        compute_us=sum(int(found[part]) for part in ("input", "infer", "output")),
    )


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("identity", ()),
        ("identity", ("--streaming",)),
        ("embedder", ("--string-data", "A fishing boat is tied up at the quay.")),
    ],
)
def test_both_sides_have_figures(server: RunningServer, model: str, options: tuple[str, ...]) -> None:
    levels = analyze(server, model, *options)
    assert set(levels) == {1, 8}
    for level in levels.values():
        assert level.throughput > 0
        assert level.compute_us > 0
        assert level.successes == level.inferences >= 50
        assert 0 < level.executions <= level.inferences
