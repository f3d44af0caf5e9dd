"""What `moorage models` makes of a model's understudies."""

from moorage_protocol import moorage_v1 as pb
from tests.support.protocol_server import protocol_server
from tests.unit.cli.test_admin_commands import two_models
from tests.unit.cli.test_commands import moorage


def test_one_that_could_not_be_loaded_is_not_ready() -> None:
    snapshot = two_models()
    (understudy,) = snapshot.models[0].understudies
    understudy.state, understudy.reason = pb.MODEL_STATE_FAILED, "failed to load"
    with protocol_server() as server:
        server.administration.is_there = True
        server.administration.snapshots = [snapshot]
        shown = moorage("models", "--target", server.target).stdout
    assert "mlp 2~1 failed cpu 80 MiB weights 7 B 8 9 no failed to load" in " ".join(shown.split())
