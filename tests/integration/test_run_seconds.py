"""What runs take is learned by the size of their rows too, on the real worker, and deadlines are judged by it."""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from moorage_client import MoorageClientError, RunEstimate, SyncClient
from tests.support.running_server import running_server
from tests.support.toy_models import write_python_model

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="shapes are listed where memory is measured")

SHORT, LONG = 16, 2048
SECONDS_PER_VALUE = 0.0002  # 3 ms for a short row, 0.4 s for a long one

BY_LENGTH = f"""
    import time
    from moorage import Model

    class ByLength(Model):
        def infer(self, inputs, batch):
            time.sleep({SECONDS_PER_VALUE} * inputs["x"].shape[1])
            return {{"y": inputs["x"]}}
"""


@pytest.fixture
def client(tmp_path: Path) -> Iterator[SyncClient]:
    write_python_model(tmp_path / "models", "by_length", BY_LENGTH, shape="[-1]")
    with running_server(tmp_path / "models", tmp_path) as server, SyncClient(server.grpc) as opened:
        opened.wait_until_ready(timeout_s=30.0)
        yield opened


def ask(client: SyncClient, length: int, timeout_s: float = 20.0) -> None:
    x = np.ones((1, length), np.float32)
    assert np.array_equal(client.infer("by_length", {"x": x}, timeout_s=timeout_s)["y"], x)


def estimate(client: SyncClient, length: int) -> RunEstimate:
    """Of one row of that shape."""
    shape_bytes = 2 ** (4 * length).bit_length() - 1
    (found,) = (each for each in client.run_estimates("by_length") if each.row_bytes == shape_bytes)
    return found


def test_short_and_long_rows_have_estimates_of_their_own(client: SyncClient) -> None:
    for _ in range(6):
        ask(client, SHORT)
        ask(client, LONG)
    for length in (SHORT, LONG):
        known = estimate(client, length)
        assert known.expected_s == pytest.approx(SECONDS_PER_VALUE * length, rel=0.5, abs=0.03)
        assert known.seconds_error is not None
    assert (estimate(client, SHORT).expected_s or 1.0) < (estimate(client, LONG).expected_s or 0.0) / 5


def test_a_deadline_that_a_long_row_can_not_meet_is_refused_and_a_short_one_is_let_in(client: SyncClient) -> None:
    for _ in range(4):
        ask(client, SHORT)
        ask(client, LONG)
    with pytest.raises(MoorageClientError, match="deadline cannot be met"):
        ask(client, LONG, timeout_s=0.2)
    ask(client, SHORT, timeout_s=0.2)
    # Short ones keep the model busy for longer than a long one's time is taken to be known.
    for _ in range(250):
        ask(client, SHORT)
    with pytest.raises(MoorageClientError) as late:
        ask(client, LONG, timeout_s=0.2)
    assert "cannot be met" not in str(late.value)
