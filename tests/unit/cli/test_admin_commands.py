"""What an operator asks of a server and tells it, from the command line."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import grpc
import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status
from rich.text import Text

from moorage_protocol import moorage_v1 as pb
from tests.support.polling import eventually
from tests.support.protocol_server import Behaviour, protocol_server
from tests.unit.cli.test_commands import assert_one_line, moorage

MIB = 2**20


@pytest.fixture
def server() -> Iterator[Behaviour]:
    with protocol_server() as behaviour:
        behaviour.administration.is_there = True
        behaviour.administration.snapshots = [two_models()]
        yield behaviour


def two_models() -> pb.Snapshot:
    snapshot = pb.Snapshot(ready=True)
    snapshot.models.add(
        name="mlp", version="2", state=pb.MODEL_STATE_RESIDENT, ready=True, device="cuda:0",
        leased_bytes={"workspace": 4 * MIB, "weights": 90 * MIB}, waiting_rows=12, running_requests=3,
        policy=pb.ModelPolicy(priority=1, reserved_bytes=64 * MIB, limit_bytes=2**30, pinned=True),
        residency_counts=pb.ResidencyCounts(loads=1, evictions=7, restores=6, preemptions=2, out_of_memory=4,
                                            oom_alone=8, oom_evicted=1, oom_halved=2, oom_other_device=3,
                                            oom_fallback=5, oom_refused=6),
        understudies=[
            pb.Understudy(
                version="2~1", state=pb.MODEL_STATE_LOADING, reason="waiting for memory", device="cpu",
                leased_bytes={"weights": 80 * MIB}, host_bytes=7, waiting_rows=8, running_requests=9,
            ),
        ],
    )  # fmt: skip
    snapshot.models.add(
        name="vad", version="1", state=pb.MODEL_STATE_OFFLOADED, ready=True, reason="evicted [for] mlp",
        host_bytes=5 * MIB, policy=pb.ModelPolicy(priority=3),
    )  # fmt: skip
    snapshot.broken_models.add(name="bad", reason="no weights")
    return snapshot


def to(server: Behaviour, *arguments: str) -> tuple[str, ...]:
    return (*arguments, "--target", server.target)


def test_models_show_what_they_hold_and_who_waits(server: Behaviour) -> None:
    result = moorage(*to(server, "models"))
    assert result.exit_code == 0, result.output
    lines = [line.split() for line in result.stdout.splitlines() if line.strip()]
    assert " ".join(lines[2]) == "bad UNAVAILABLE 0 B no no weights"
    share = "priority 1, reserved 64 MiB, limit 1 GiB, pinned"
    assert " ".join(lines[3]) == f"mlp 2 resident cuda:0 90 MiB weights, 4 MiB workspace {share} 12 3 yes"
    assert " ".join(lines[4]) == "mlp 2~1 loading cpu 80 MiB weights 7 B 8 9 yes waiting for memory"
    assert " ".join(lines[5]) == "vad 1 offloaded 0 B 5 MiB priority 3 yes evicted [for] mlp"


def test_models_for_machines_keep_their_words(server: Behaviour) -> None:
    bad, mlp, vad = json.loads(moorage(*to(server, "models", "--json")).stdout)
    assert (bad["name"], bad["state"], bad["ready"], bad["reason"]) == ("bad", "UNAVAILABLE", False, "no weights")
    assert mlp == {
        "name": "mlp",
        "version": "2",
        "state": "READY",
        "ready": True,
        "reason": "",
        "device": "cuda:0",
        "memory_bytes": 94 * MIB,
        "residency": "resident",
        "leased_bytes": {"weights": 90 * MIB, "workspace": 4 * MIB},
        "host_bytes": 0,
        "priority": 1,
        "reserved_bytes": 64 * MIB,
        "limit_bytes": 2**30,
        "pinned": True,
        "waiting_rows": 12,
        "running_requests": 3,
        "loads": 1,
        "evictions": 7,
        "restores": 6,
        "preemptions": 2,
        "out_of_memory": 4,
        "oom_alone": 8,
        "oom_evicted": 1,
        "oom_halved": 2,
        "oom_other_device": 3,
        "oom_fallback": 5,
        "oom_refused": 6,
        "understudies": [
            {
                "version": "2~1",
                "state": "loading",
                "reason": "waiting for memory",
                "device": "cpu",
                "leased_bytes": {"weights": 80 * MIB},
                "host_bytes": 7,
                "waiting_rows": 8,
                "running_requests": 9,
            }
        ],
    }
    assert (vad["state"], vad["residency"], vad["memory_bytes"]) == ("READY", "offloaded", 0)


def test_a_terminal_of_80_columns_has_room_for_all(server: Behaviour, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"FORCE_COLOR": "1", "TERM": "xterm", "COLUMNS": "80"}.items():
        monkeypatch.setenv(name, value)
    shown = Text.from_ansi(moorage(*to(server, "models")).stdout).plain
    assert max(map(len, shown.splitlines())) <= 80
    words = ("mlp/2", "resident", "offloaded", "UNAVAILABLE", "cuda:0", "90 MiB weights", "5 MiB host", "pinned", "12")
    for word in (*words, "evicted", "no weights"):
        assert word in shown


def test_a_policy_is_changed_where_it_is_given(server: Behaviour) -> None:
    server.administration.policy = pb.ModelPolicy(priority=2, reserved_bytes=3 * MIB, pinned=True)
    options = ("--priority", "2", "--reserved", "3MiB", "--limit", "none", "--pinned", "--model-version", "4")
    result = moorage(*to(server, "models", "policy", "mlp", *options))
    assert (result.exit_code, result.stdout) == (0, "mlp: priority 2, reserved 3 MiB, pinned\n")
    result = moorage(*to(server, "models", "policy", "mlp", "--limit", "1.5 GiB", "--no-pinned", "--json"))
    assert json.loads(result.stdout) == {
        "priority": 2,
        "reserved_bytes": 3 * MIB,
        "limit_bytes": None,
        "pinned": True,
    }
    first, second = server.administration.requests
    assert first == pb.SetModelPolicyRequest(
        model_name="mlp", model_version="4", priority=2, reserved_bytes=3 * MIB, no_limit=True, pinned=True
    )
    assert second == pb.SetModelPolicyRequest(model_name="mlp", limit_bytes=1536 * MIB, pinned=False)


def explanation(verdict: int) -> pb.ExplainResponse:
    vad = pb.Holder(owner="vad/1", kind="weights", size_bytes=5 * MIB, priority=4)
    context = pb.Holder(owner="cuda:0", kind="context", size_bytes=MIB)
    answer = pb.ExplainResponse(
        model_name="mlp", model_version="2", device="cuda:0", rows=8, priority=2, needed_bytes=9 * MIB,
        free_bytes=4 * MIB, missing_bytes=0, evict=[vad], holders=[vad, context], reason="vad/1 is idle",
    )  # fmt: skip
    answer.verdict = verdict  # type: ignore[assignment]
    return answer


def test_explain_says_who_would_go(server: Behaviour) -> None:
    server.administration.explanation = explanation(pb.VERDICT_EVICT)
    result = moorage(*to(server, "explain", "mlp", "--rows", "8", "--priority", "2"))
    assert result.exit_code == 0, result.output
    lines = [" ".join(line.split()) for line in result.stdout.splitlines() if line.strip()]
    assert lines[:3] == [
        "mlp/2, 8 rows at priority 2 on cuda:0",
        "yes: vad/1 is idle",
        "needs 9 MiB, 4 MiB free",
    ]
    assert lines[5:] == ["vad/1 weights 5 MiB 4 evicted (1)", "cuda:0 context 1 MiB stays"]
    assert server.administration.requests == [pb.ExplainRequest(model_name="mlp", rows=8, priority=2)]


def test_estimates_are_shown_with_their_errors(server: Behaviour) -> None:
    server.administration.estimates.estimates.extend(
        [
            pb.RunEstimate(
                rows=8, row_bytes=127, leased_bytes=11 * MIB, expected_bytes=10 * MIB, measured_bytes=20 * MIB,
                bytes_error=-0.5, measured_runs=3, expected_s=0.0125, seconds_error=0.042,
            ),
            pb.RunEstimate(rows=16, leased_bytes=5 * MIB),
        ]
    )  # fmt: skip
    result = moorage(*to(server, "estimates", "mlp"))
    assert result.exit_code == 0, result.output
    lines = [" ".join(line.split()) for line in result.stdout.splitlines() if line.strip()]
    assert lines[2:] == ["8 127 B 11 MiB 10 MiB 20 MiB -50% 3 0.0125 4%", "16 5 MiB"]
    told = json.loads(moorage(*to(server, "estimates", "mlp", "--model-version", "2", "--json")).stdout)
    assert [(row["rows"], row["measured_bytes"], row["expected_s"]) for row in told] == [
        (8, 20 * MIB, 0.0125),
        (16, None, None),
    ]
    assert server.administration.requests[-1] == pb.GetRunEstimatesRequest(model_name="mlp", model_version="2")


def test_where_nothing_has_run_yet_estimates_say_so(server: Behaviour) -> None:
    assert moorage(*to(server, "estimates", "mlp")).stdout == "nothing is known of the runs of mlp yet\n"


@pytest.mark.parametrize(
    ("verdict", "word"),
    [
        (pb.VERDICT_NOW, "now"),
        (pb.VERDICT_PREEMPT, "preempt"),
        (pb.VERDICT_WAIT, "wait"),
        (pb.VERDICT_REFUSED, "refused"),
        (pb.VERDICT_NEVER, "never"),
    ],
)
def test_explain_for_machines_is_0_whatever_the_answer(server: Behaviour, verdict: int, word: str) -> None:
    server.administration.explanation = explanation(verdict)
    result = moorage(*to(server, "explain", "mlp", "--json"))
    assert result.exit_code == 0
    told = json.loads(result.stdout)
    assert (told["verdict"], told["evict"][0]["owner"], told["needed_bytes"]) == (word, "vad/1", 9 * MIB)
    assert moorage(*to(server, "explain", "mlp")).exit_code == 0


@pytest.mark.parametrize(
    ("given", "signal_number"), [((), signal.SIGINT), (("--json",), signal.SIGINT), ((), signal.SIGTERM)]
)
def test_a_hold_is_told_and_lasts_until_it_is_interrupted(
    server: Behaviour, given: tuple[str, ...], signal_number: int
) -> None:
    command = [sys.executable, "-m", "moorage", *to(server, "hold", "cuda:0", "2GiB", "--priority", "1", *given)]
    command = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *command]  # as in the background of a script
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            held = list(server.administration.held)
            os.kill(process.pid, signal_number)
            _, complaint = process.communicate(timeout=20)
        finally:
            process.kill()
    if given:
        assert json.loads(line) == {"device": "cuda:0", "size_bytes": 2**31}
    else:
        assert line == "holding 2 GiB of cuda:0 until Ctrl-C or SIGTERM\n"
    assert held == [pb.HoldRequest(device="cuda:0", size_bytes=2**31, priority=1, max_wait_ms=30_000)]
    assert (process.returncode, complaint) == (0, "")
    eventually(lambda: not server.administration.held, what="the hold has ended")


def test_a_hold_that_is_lost_is_1(server: Behaviour) -> None:
    server.administration.lost.set()
    result = moorage(*to(server, "hold", "cpu", "1"))
    assert (result.exit_code, result.stdout) == (1, "holding 1 B of cpu until Ctrl-C or SIGTERM\n")
    assert result.stderr == "error: the hold is lost: UNAVAILABLE: the server is shutting down\n"


def test_a_refusal_names_who_holds_the_memory(server: Behaviour) -> None:
    info = AnyMessage()
    info.Pack(ErrorInfo(reason="MEMORY_EXHAUSTED", metadata={"held_by": f"vad/1 weights {5 * MIB}"}))
    details = Status(code=8, details=[info]).SerializeToString()
    server.administration.refusal = (
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        "not free",
        (("grpc-status-details-bin", details),),
    )
    says = "error: RESOURCE_EXHAUSTED: not free; held by vad/1 5 MiB weights\n"
    for command in (("hold", "cpu", "1"), ("models", "policy", "mlp", "--reserved", "1")):
        assert_one_line(moorage(*to(server, *command)), exit_code=1, says=says)


@pytest.mark.parametrize(
    "command",
    [("explain", "mlp"), ("estimates", "mlp"), ("hold", "cpu", "1"), ("models", "policy", "mlp", "--pinned")],
)
def test_a_server_without_the_service_is_one_line_and_1(server: Behaviour, command: tuple[str, ...]) -> None:
    server.administration.is_there = False
    assert_one_line(moorage(*to(server, *command)), exit_code=1, says="UNIMPLEMENTED")


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (("models", "policy", "mlp"), "nothing to change"),
        (("models", "policy", "mlp", "--reserved", "1,5 GiB"), "--reserved: expected a size such as 2GiB"),
        (("models", "policy", "mlp", "--limit", "some"), "--limit: expected a size"),
        (("hold", "cpu", "-1"), ""),
        (("hold", "cpu", "much"), "SIZE: expected a size"),
        (("hold", "cpu"), ""),
        (("hold", "cpu", "1", "--max-wait", "0"), ""),
        (("hold", "cpu", "1", "--priority", "6"), ""),
        (("models", "policy", "mlp", "--priority", "0"), ""),
        (("explain", "mlp", "--rows", "0"), ""),
        (("explain",), ""),
    ],
)
def test_wrong_usage_is_2(server: Behaviour, command: tuple[str, ...], says: str) -> None:
    result = moorage(*to(server, *command))
    assert result.exit_code == 2
    assert says in result.stderr
    assert server.administration.requests == []
