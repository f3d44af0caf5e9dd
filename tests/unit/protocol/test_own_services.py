"""What is ours alone: numbers that must not change once given, and the style that `buf lint` asks for."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from moorage_protocol.pool import files_of
from moorage_protocol.services import ADMIN_METHODS, ADMIN_SERVICE, BATCH_METHODS, BATCH_SERVICE, Method
from tests.unit.protocol.descriptors import Element, Enum, Field, Rpc, flatten

ROOT = Path(__file__).parents[3]

ANSWERS_STREAM = {"WatchSnapshot", "Hold", "Submit", "Attach"}
ASKS_STREAM = {"Submit"}
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
    "SubmitRequest": "header items after_sequence",
    "SubmitResponse": "events",
    "BatchHeader": "batch_id model_name model_version priority timeout_ms ordered durable retry result_ttl_ms labels "
    "item_states",
    "BatchRetry": "attempts first_backoff_ms max_backoff_ms codes",
    "BatchItems": "items",
    "BatchEvent": "sequence opened acknowledged result error item_state progress summary",
    "BatchOpened": "batch credit_items first_sequence",
    "BatchAcknowledged": "items credit_items duplicates",
    "BatchResult": "item_id responses",
    "BatchItemError": "item_id status",
    "BatchItemState": "item_id state",
    "BatchProgress": "counts items_per_second remaining_s",
    "BatchCounts": "received queued running preempted retrying succeeded failed cancelled",
    "BatchSummary": "batch",
    "Batch": "header state counts complete sequence created_at_ms ended_at_ms expires_at_ms stored_bytes",
    "AttachRequest": "batch_id after_sequence",
    "AttachResponse": "events",
    "GetRequest": "batch_id",
    "GetResponse": "batch",
    "ListRequest": "limit labels page_token",
    "ListResponse": "batches next_page_token",
    "CancelRequest": "batch_id",
    "CancelResponse": "batch",
    "DeleteRequest": "batch_id",
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


@pytest.mark.parametrize(("service", "methods"), [(ADMIN_SERVICE, ADMIN_METHODS), (BATCH_SERVICE, BATCH_METHODS)])
def test_every_method_has_messages_of_its_own(
    ours: dict[str, Element], service: str, methods: Mapping[str, Method]
) -> None:
    for name, method in methods.items():
        messages = (f".moorage.v1.{name}Request", f".moorage.v1.{name}Response")
        assert ours[f"{service}.{name}"] == Rpc(*messages, name in ASKS_STREAM, name in ANSWERS_STREAM)
        assert method.path == f"/{service}/{name}"


def test_values_of_enums_begin_with_its_name_and_0_says_nothing(ours: dict[str, Element]) -> None:
    enums = {name.rpartition(".")[2]: item for name, item in ours.items() if isinstance(item, Enum)}
    assert enums.keys() == {"BatchState", "ItemState", "ModelState", "Verdict"}
    for name, enum in enums.items():
        prefix = re.sub("(?<!^)(?=[A-Z])", "_", name).upper()
        assert enum.values[0] == (f"{prefix}_UNSPECIFIED", 0)
        assert all(value.startswith(f"{prefix}_") for value, _ in enum.values)
        assert [number for _, number in enum.values] == list(range(len(enum.values)))


def test_the_makefile_knows_every_proto() -> None:
    (listed,) = re.findall(r"^PROTOS := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(listed.split()) == {str(path.relative_to(ROOT)) for path in (ROOT / "protos").rglob("*.proto")}
