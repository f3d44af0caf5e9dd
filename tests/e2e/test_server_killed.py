"""kill -9 of the server: its workers go with it, and another can take its place at once."""

import time
from pathlib import Path

import psutil

from tests.support.calls import Failure, calls_to, request_of, rows_of
from tests.support.polling import eventually
from tests.support.running_server import running_server
from tests.support.shared_memory import shared_memory
from tests.support.toy_models import DEDICATED, write_python_model, write_simulated_model

_HOLDS_THE_LOCK = """
    import ctypes
    from moorage import Model

    class HoldsTheLock(Model):
        def infer(self, inputs, batch):
            ctypes.PyDLL(None).usleep(20_000_000)
            return {"y": inputs["x"]}
"""


def test_workers_go_and_the_port_is_free(tmp_path: Path) -> None:
    """One worker computes, one holds the interpreter's lock, one is idle: none outlives the server."""
    models = tmp_path / "models"
    write_simulated_model(models, "busy", run_s=20.0)
    write_simulated_model(models, "idle", extra=DEDICATED)
    write_python_model(models, "holds", _HOLDS_THE_LOCK, extra=DEDICATED)
    before = shared_memory()
    with running_server(models, tmp_path) as server, calls_to(server.grpc) as calls:
        eventually(calls.is_ready, within_s=50.0, what="the server is ready")
        workers = server.workers()
        assert len(workers) == 3
        under_way = [calls.start(request_of(name, rows_of(1))) for name in ("busy", "holds")]
        time.sleep(0.2)
        server.process.kill()
        server.process.wait(5.0)
        began_s = time.monotonic()
        psutil.wait_procs(workers, timeout=5.0)
        assert not [worker for worker in workers if worker.is_running()]
        assert time.monotonic() - began_s < 5.0
        assert all(isinstance(call.outcome(), Failure) for call in under_way)
    assert shared_memory() <= before
    with running_server(models, tmp_path, grpc=server.grpc) as second:
        assert second.grpc == server.grpc
        with calls_to(second.grpc) as calls:
            eventually(calls.is_live, what="the next one answers at the same address")
