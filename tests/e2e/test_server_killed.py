"""kill -9 of the server itself: its workers go, its port is free, nothing is left behind."""

import os
import signal
import socket
from pathlib import Path

from tests.support.calls import calls_to, request_of, rows_of
from tests.support.polling import eventually
from tests.support.running_server import running_server
from tests.support.toy_models import ECHO, SLOW, write_python_model
from tests.support.worker_processes import gone


def test_workers_end_and_the_port_is_free(tmp_path: Path) -> None:
    shared_before = set(os.listdir("/dev/shm"))
    write_python_model(tmp_path / "models", "echo", ECHO)
    write_python_model(tmp_path / "models", "slow", SLOW, extra='[placement]\nisolation = "dedicated"')
    with running_server(tmp_path / "models", tmp_path) as server, calls_to(server.grpc) as calls:
        eventually(calls.is_ready, within_s=30, what="the server is ready")
        workers = server.workers()
        assert len(workers) == 2
        busy = calls.start(request_of("slow", rows_of(1), parameters={"delay_ms": 20_000}))
        server.process.send_signal(signal.SIGKILL)
        server.process.wait(5)
        assert busy.outcome().code == "UNAVAILABLE"
        for worker in workers:
            gone(worker.pid, within_s=5.0)
        host, port = server.grpc.split(":")
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, int(port)))
        assert set(os.listdir("/dev/shm")) <= shared_before
