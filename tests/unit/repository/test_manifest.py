import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.domain.model import Isolation, Loading, Preemption
from moorage.domain.tensor import MAX_RANK
from moorage.repository.errors import ManifestError
from moorage.repository.manifest import Manifest, parse_manifest
from tests.support.model_folders import SIMULATED

WHOLE = """
name = "embedder"
runtime = "simulated"
max_batch_size = 32
instances = 2
inputs = [
    { name = "text", datatype = "BYTES", shape = [1] },
    { name = "k", datatype = "INT64", shape = [], optional = true },
]
outputs = [{ name = "embedding", datatype = "FP32", shape = [-1, 384] }]
load = "on_demand"
load_timeout_s = 120
versions = [3, 1]
[memory]
weights = "90 MiB"
workspace_per_row = 4096
workspace_fixed = "16 MiB"
state = "2 MiB"
reserved = "100 MiB"
limit = "1 GiB"
pinned = true
[batching]
max_queue_delay_s = 0.01
low_watermark = 3
preferred_sizes = [4, 8]
split_requests = true
per_request_parameters = ["tenant", "trace"]
[scheduling]
priority = 1
preemption = "kill"
max_preemptions = 7
weight = 2.5
max_queue_rows = 64
max_queue_bytes = "1 MiB"
default_timeout_s = 2.5
[rate_limit]
requests_per_s = 100.0
rows_per_s = 1000
burst_s = 0.5
[placement]
devices = ["cpu", "cuda:1"]
isolation = "dedicated"
[simulated]
load_s = 0.3
run_s = 0.01
run_s_per_row = 0.001
[parameters]
anything = { goes = [1, "two"] }
"""


def _problems(text: str, folder: str = "embedder") -> tuple[str, ...]:
    with pytest.raises(ManifestError) as caught:
        parse_manifest(text.encode(), folder)
    assert all(problem.startswith("model.toml: ") for problem in caught.value.problems)
    return tuple(problem.removeprefix("model.toml: ") for problem in caught.value.problems)


def test_every_key_is_read() -> None:
    manifest = parse_manifest(WHOLE.encode(), "embedder")
    assert manifest.instances == 2
    assert manifest.inputs[1].optional
    assert manifest.outputs[0].shape == (-1, 384)
    assert manifest.loading is Loading.ON_DEMAND
    assert manifest.versions == (1, 3)
    assert manifest.memory.weights_bytes == 90 * 1024**2
    assert manifest.memory.workspace_per_row_bytes == 4096
    assert manifest.memory.state_bytes == 2 * 1024**2
    assert manifest.memory.reserved_bytes == 100 * 1024**2
    assert manifest.memory.limit_bytes == 1024**3
    assert manifest.memory.pinned
    assert manifest.batching.max_queue_delay_s == 0.01
    assert manifest.batching.low_watermark == 3
    assert manifest.batching.preferred_sizes == (4, 8)
    assert manifest.batching.split_requests
    assert manifest.batching.per_request_parameters == {"tenant", "trace"}
    assert manifest.rate_limit.model_dump() == {"requests_per_s": 100.0, "rows_per_s": 1000.0, "burst_s": 0.5}
    assert manifest.scheduling.priority == 1
    assert manifest.scheduling.preemption is Preemption.KILL
    assert manifest.scheduling.max_preemptions == 7
    assert manifest.scheduling.weight == 2.5
    assert manifest.scheduling.default_timeout_s == 2.5
    assert manifest.placement.isolation is Isolation.DEDICATED
    assert manifest.parameters == {"anything": {"goes": [1, "two"]}}


def test_little_is_required() -> None:
    manifest = parse_manifest(SIMULATED.encode(), "any")
    assert manifest.loading is Loading.EAGER
    assert manifest.versions == "latest"
    assert manifest.instances == 1
    assert manifest.memory.weights_bytes is None
    assert manifest.memory.state_bytes is None
    assert manifest.memory.limit_bytes is None
    assert manifest.scheduling.preemption is Preemption.STEP
    assert manifest.placement.devices == ("*",)
    assert manifest.placement.fallback is None


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("max_batchsize = 8", "unknown key 'max_batchsize', did you mean 'max_batch_size'?"),
        ("memory = { weigths = 1 }", "memory: unknown key 'weigths', did you mean 'weights'?"),
        ("memory = { weights = '1,5 GiB' }", "memory.weights: expected bytes such as"),
        ("memory = 5", "memory: expected a table, got 5"),
        ("name = 'other'", "name: expected the folder's name 'embedder', got 'other'"),
        ("load = 'lazy'", "load: expected one of eager, on_demand, explicit, got 'lazy'"),
        ("load_timeout_s = 0", "load_timeout_s: expected seconds above 0, at most 604800, got 0"),
        ("load_timeout_s = nan", "load_timeout_s: expected seconds above 0, at most 604800, got nan"),
        ("load_timeout_s = true", "load_timeout_s: expected seconds above 0, at most 604800, got True"),
        ("load_timeout_s = '5'", "load_timeout_s: expected seconds above 0, at most 604800, got '5'"),
        ("versions = [1, 1]", 'versions: expected "latest", "all" or a list of version numbers, each once, got [1, 1]'),
        ("versions = []", 'versions: expected "latest", "all" or a list of version numbers, each once, got []'),
        ("scheduling = { max_queue_rows = 0 }", "scheduling.max_queue_rows: expected rows from 1 to 1048576, got 0"),
        ("scheduling = { priority = 0 }", "scheduling.priority: expected 1 (highest) to 5, got 0"),
        ("scheduling = { priority = 6 }", "scheduling.priority: expected 1 (highest) to 5, got 6"),
        ("scheduling = { priority = true }", "scheduling.priority: expected 1 (highest) to 5, got True"),
        (
            "scheduling = { preemption = 'nevr' }",
            "scheduling.preemption: expected one of step, kill, never, got 'nevr'",
        ),
        ("scheduling = { max_preemptions = -1 }", "scheduling.max_preemptions: expected times from 0 to 1000, got -1"),
        (
            "scheduling = { max_preemptions = 1001 }",
            "scheduling.max_preemptions: expected times from 0 to 1000, got 10",
        ),
        ("batching = { low_watermark = 1.5 }", "batching.low_watermark: expected rows from 0 to 1048576, got 1.5"),
        (
            "batching = { max_queue_delay_s = -1 }",
            "batching.max_queue_delay_s: expected seconds from 0 to 604800, got -1",
        ),
        (
            "batching = { low_watermark = 9, max_queue_delay_s = 1.0 }",
            "batching: expected low_watermark and preferred_sizes of at most max_batch_size = 8, got 9",
        ),
        (
            "batching = { preferred_sizes = [4, 8] }",
            "batching.max_queue_delay_s: expected the seconds that low_watermark and preferred_sizes are waited for",
        ),
        (
            "batching = { preferred_sizes = [8, 4], max_queue_delay_s = 1.0 }",
            "batching.preferred_sizes: expected a list of rows, each at least 1, ascending, got [8, 4]",
        ),
        (
            "rate_limit = { rows_per_s = 0 }",
            "rate_limit.rows_per_s: expected a number per second, above 0, at most 1e9, g",
        ),
        ("rate_limit = { burst_s = 0 }", "rate_limit.burst_s: expected seconds above 0"),
        ("batching = { preferred_sizes = [0] }", "batching.preferred_sizes[0]: expected"),
        ("batching = { split_requests = 1 }", "batching.split_requests: expected true or false, got 1"),
        (
            'batching = { per_request_parameters = "tenant" }',
            "batching.per_request_parameters: expected a list of names of parameters, or '*' for all, got 'tenant'",
        ),
        ("memory = { state = 'all' }", "memory.state: expected bytes such as"),
        ("memory = { reserved = -1 }", "memory.reserved: expected bytes such as"),
        ("memory = { limit = 1.5 }", "memory.limit: expected bytes such as"),
        ("memory = { pinned = 1 }", "memory.pinned: expected true or false, got 1"),
        ("bogus = 1", "unknown key 'bogus', expected one of batching, decoupled, inputs, instances, load, "),
        ("placement = { devices = ['gpu'] }", 'placement.devices[0]: expected a list of "*", "cpu" or "cuda:N", each'),
        ("placement = { devices = ['cpu', 'cpu'] }", "placement.devices: expected a list of"),
        ("placement = { fallback = 'cuda:1' }", "placement.fallback: expected \"cpu\", or no such key, got 'cuda:1'"),
        ("placement = { fallback = ['cpu'] }", 'placement.fallback: expected "cpu", or no such key, got '),
        ("simulated = { run_s = -1.0 }", "simulated.run_s: expected seconds from 0 to 604800, got -1.0"),
    ],
)
def test_a_wrong_key_is_one_readable_line(change: str, problem: str) -> None:
    (line,) = _problems(SIMULATED + change)
    assert line.startswith(problem)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("runtime = ", "max_wait_ms = ", "runtime: expected one of python, torchscript, torch_export, onnx, simulated"),
        (
            '"simulated"',
            '"pyton"',
            "runtime: expected one of python, torchscript, torch_export, onnx, simulated, got 'p",
        ),
        ("= 8", "= -1", "max_batch_size: expected rows from 0 to 1048576, got -1"),
        ("= 8", "= true", "max_batch_size: expected rows from 0 to 1048576, got True"),
        ("= 8", "= 8\ninstances = 0", "instances: expected runs at once, from 1 to 16, got 0"),
        ("= 8", "= 8\ninstances = 17", "instances: expected runs at once, from 1 to 16, got 17"),
        ("= 8", "= 8\ninstances = '2'", "instances: expected runs at once, from 1 to 16, got '2'"),
        ("FP32", "fp32", "inputs[0].datatype: expected one of BOOL, UINT8, "),
        ("[4]", "[-2]", "inputs[0].shape[0]: expected a list of dimensions, each -1 (any size) or at least 0, got -2"),
        ("[4]", "[1.0]", "inputs[0].shape[0]: expected a list of dimensions"),
        ('"x"', '""', "inputs[0].name: expected a name, got ''"),
        ("[4] }", "[4], typ = 1 }", "inputs[0]: unknown key 'typ', "),
    ],
)
def test_a_wrong_value_is_named_by_its_path(old: str, new: str, problem: str) -> None:
    assert any(line.startswith(problem) for line in _problems(SIMULATED.replace(old, new)))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (SIMULATED.replace('[{ name = "y", datatype = "FP32", shape = [4] }]', "[]"), "outputs: expected at least one"),
        (SIMULATED.replace("simulated", "onnx") + "[simulated]", "simulated: expected only with runtime = 'simulated'"),
        (
            SIMULATED.replace("[4] }]\nout", "[4] }, { name = 'x', datatype = 'BOOL', shape = [] }]\nout"),
            "inputs: expected every name once, got 'x' more than once",
        ),
        (SIMULATED.replace("[4]", str([1] * MAX_RANK), 1), "inputs[0].shape: expected at most 31 dimensions, got 32"),
        (
            SIMULATED.replace('[{ name = "x", datatype = "FP32", shape = [4] }]', "[]"),
            "inputs: expected at least one where max_batch_size is above 0, got []",
        ),
        (
            SIMULATED + "memory = { workspace_fixed = 10, workspace_per_row = 4, state = 2, limit = 15 }",
            "memory.limit: expected at least 16 bytes, which one row takes by workspace_fixed, workspace_per_row and s",
        ),
        (
            SIMULATED + "memory = { weights = 100, limit = 20, reserved = 121 }",
            "memory.reserved: expected at most 120 bytes, weights and limit together, got 121",
        ),
        (
            SIMULATED.replace("= 8", "= 0") + "batching = { split_requests = true }",
            "batching.split_requests: expected true only with max_batch_size above 0, got max_batch_size = 0",
        ),
        (
            SIMULATED + "instances = 2\nsimulated = { steps = 3 }",
            "instances: expected 1 where simulated.steps is above 1, got 2",
        ),
        (
            SIMULATED + "scheduling = { preemption = 'kill' }",
            "scheduling.preemption: expected 'kill' only with placement.isolation = 'dedicated', got isolation = 'sha",
        ),
    ],
)  # fmt: skip
def test_keys_must_agree(text: str, problem: str) -> None:
    (line,) = _problems(text)
    assert line.startswith(problem)


@pytest.mark.parametrize(
    "memory",
    [
        "{ workspace_fixed = 10, workspace_per_row = 4, state = 2, limit = 16 }",
        "{ weights = 100, limit = 20, reserved = 120 }",
        "{ limit = 20, reserved = 500 }",
        "{ weights = 100, reserved = 500 }",
        "{ limit = 0 }",
    ],
)
def test_what_may_be_meant_is_allowed(memory: str) -> None:
    assert parse_manifest((SIMULATED + f"memory = {memory}").encode(), "any").memory.problems() == []


def test_the_rank_limit_itself_is_allowed_without_a_batch_axis() -> None:
    text = SIMULATED.replace("= 8", "= 0").replace("[4]", str([1] * MAX_RANK))
    assert len(parse_manifest(text.encode(), "any").inputs[0].shape) == MAX_RANK


def test_all_problems_come_at_once() -> None:
    assert len(_problems("runtime = 'x'\nload = 'y'\nzzz = 1")) == 5


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"a = 1\nb = \n", "model.toml: line 2, column 5: Invalid value"),
        (b"a = 1\nb = [", "model.toml: line 2: "),
        (b"a = 1\nb = '\xff'", "model.toml: line 2: expected UTF-8 text, got byte 0xff"),
        (b"a = " + b"[" * 5000, "model.toml: not readable as TOML"),
        (b"a = " + b"9" * 5000, "model.toml: not readable as TOML"),
    ],
    ids=["value", "end", "encoding", "depth", "digits"],
)
def test_a_syntax_error_says_where(content: bytes, problem: str) -> None:
    with pytest.raises(ManifestError) as caught:
        parse_manifest(content, "any")
    assert str(caught.value).startswith(problem)


@given(st.one_of(st.binary(), st.text().map(str.encode)))
def test_any_bytes_are_a_manifest_or_a_manifest_error(content: bytes) -> None:
    with contextlib.suppress(ManifestError):
        assert isinstance(parse_manifest(content, "any"), Manifest)
