"""Everything that the core can say has its word in the protocol."""

import pytest

from moorage.domain.model import ModelKey
from moorage.rpc.admin_render import explanation_message
from moorage.scheduling.explain import Explanation, Verdict
from moorage_protocol import moorage_v1 as pb


@pytest.mark.parametrize("verdict", Verdict)
def test_every_verdict_is_told(verdict: Verdict) -> None:
    explanation = Explanation(
        verdict=verdict,
        device="cpu",
        priority=3,
        rows=1,
        needed_bytes=1,
        free_bytes=0,
        missing_bytes=1,
        evict=(),
        preempt=(),
        holders=(),
        reason="",
    )
    message = explanation_message(ModelKey("mlp", 1), explanation)
    assert pb.Verdict.Name(message.verdict) == f"VERDICT_{verdict.name}"
