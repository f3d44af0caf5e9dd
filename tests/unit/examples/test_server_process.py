"""The demo's server process, with small scripts in the server's place."""

import os
import sys

import pytest
from examples.server_process import ServerFailedError, ServerProcess

ANNOUNCE = "import os, sys, time; print('pid', os.getpid()); print('  gRPC  127.0.0.1:4321', flush=True); "
QUIT_WELL = "import signal; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); "


def server(script: str, start_timeout_s: float = 20.0) -> ServerProcess:
    return ServerProcess([sys.executable, "-c", script], start_timeout_s=start_timeout_s)


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_finds_the_address_and_stops() -> None:
    with server("import sys; " + QUIT_WELL + ANNOUNCE + "time.sleep(60)") as running:
        assert running.address == "127.0.0.1:4321"
        assert is_running(running.pid)
        running.stop()
        assert not is_running(running.pid)


def test_is_ended_when_the_body_fails() -> None:
    with pytest.raises(RuntimeError, match="body"), server(ANNOUNCE + "time.sleep(60)") as running:
        raise RuntimeError("body")
    assert not is_running(running.pid)


def test_an_exit_code_other_than_zero_is_told() -> None:
    running = server(ANNOUNCE + "time.sleep(60)")
    with pytest.raises(ServerFailedError, match="exit code -15 after SIGTERM"), running:
        running.stop()


def test_a_server_that_ends_at_once_shows_its_last_lines() -> None:
    with (
        pytest.raises(ServerFailedError, match=r"exit code 2 after .*\n  no such folder"),
        server("import sys; print('no such folder', file=sys.stderr); sys.exit(2)"),
    ):
        pass


def test_a_server_that_names_no_port_is_ended() -> None:
    silent = server("import time; time.sleep(60)", start_timeout_s=0.2)
    with pytest.raises(ServerFailedError, match=r"named no gRPC port within 0\.2 s; it printed nothing"), silent:
        pass
    assert not is_running(silent.pid)


def test_a_server_that_talks_while_stopping_does_not_block_on_a_full_pipe() -> None:
    talk_and_quit = "signal.signal(signal.SIGTERM, lambda *_: (print('x' * 1_000_000), sys.exit(0))); "
    with server("import signal, sys; " + talk_and_quit + ANNOUNCE + "time.sleep(60)") as running:
        running.stop()
