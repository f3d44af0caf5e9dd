"""What is ours alone: numbers that must not change once given, and the style that `buf lint` asks for."""

import re
from pathlib import Path

import pytest

from moorage_protocol.pool import files_of
from moorage_protocol.services import ADMIN_METHODS, ADMIN_SERVICE
from tests.unit.protocol.descriptors import Element, Enum, Field, Rpc, flatten

ROOT = Path(__file__).parents[3]

STREAMING = {"WatchSnapshot", "Hold"}
NUMBERS = {
    "Snapshot": "ready draining models broken_models devices",
    "Model": "name version state ready reason device leased_bytes host_bytes policy waiting_rows running_requests "
    "residency_counts understudies",
    "ModelPolicy": "priority reserved_bytes limit_bytes pinned",
    "ResidencyCounts": "loads evictions restores preemptions out_of_memory oom_evicted oom_halved oom_other_device "
    "oom_fallback oom_refused oom_alone",
    "Understudy": "version state reason device leased_bytes host_bytes waiting_rows running_requests",
    "BrokenModel": "name reason",
    "Device": "name capacity_bytes configured_bytes leased_bytes host_capacity_bytes host_leased_bytes run_slots "
    "running_runs waiting",
    "WatchSnapshotRequest": "interval_ms",
    "SetModelPolicyRequest": "model_name model_version priority reserved_bytes limit_bytes no_limit pinned",
    "SetModelPolicyResponse": "model_name model_version policy",
    "GetRunEstimatesRequest": "model_name model_version",
    "GetRunEstimatesResponse": "model_name model_version estimates",
    "RunEstimate": "rows row_bytes leased_bytes expected_bytes measured_bytes bytes_error measured_runs expected_s "
    "seconds_error",
    "ExplainRequest": "model_name model_version rows priority",
    "ExplainResponse": "model_name model_version verdict device rows priority needed_bytes free_bytes missing_bytes "
    "evict preempt holders reason",
    "Holder": "owner kind size_bytes priority",
    "HoldRequest": "device size_bytes priority max_wait_ms",
    "HoldResponse": "granted keepalive",
    "HoldGranted": "device size_bytes",
}


@pytest.fixture(scope="module")
def ours() -> dict[str, Element]:
    return flatten(files_of("moorage.v1"))


@pytest.mark.parametrize("message", NUMBERS)
def test_fields_keep_their_numbers(ours: dict[str, Element], message: str) -> None:
    prefix = f"moorage.v1.{message}."
    fields = {name.removeprefix(prefix): item for name, item in ours.items() if isinstance(item, Field)}
    numbers = {name: item.number for name, item in fields.items() if "." not in name}
    assert numbers == {name: number for number, name in enumerate(NUMBERS[message].split(), start=1)}


def test_every_method_has_messages_of_its_own(ours: dict[str, Element]) -> None:
    for name, method in ADMIN_METHODS.items():
        expected = Rpc(f".moorage.v1.{name}Request", f".moorage.v1.{name}Response", False, name in STREAMING)
        assert ours[f"{ADMIN_SERVICE}.{name}"] == expected
        assert method.path == f"/{ADMIN_SERVICE}/{name}"


def test_values_of_enums_begin_with_its_name_and_0_says_nothing(ours: dict[str, Element]) -> None:
    enums = {name.rpartition(".")[2]: item for name, item in ours.items() if isinstance(item, Enum)}
    assert enums.keys() == {"ModelState", "Verdict"}
    for name, enum in enums.items():
        prefix = re.sub("(?<!^)(?=[A-Z])", "_", name).upper()
        assert enum.values[0] == (f"{prefix}_UNSPECIFIED", 0)
        assert all(value.startswith(f"{prefix}_") for value, _ in enum.values)
        assert [number for _, number in enum.values] == list(range(len(enum.values)))


def test_the_makefile_knows_every_proto() -> None:
    (listed,) = re.findall(r"^PROTOS := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(listed.split()) == {str(path.relative_to(ROOT)) for path in (ROOT / "protos").rglob("*.proto")}
