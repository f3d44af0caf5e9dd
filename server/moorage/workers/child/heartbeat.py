"""Signs of life that no model can hold back, not even one that keeps the interpreter lock for seconds.

Python's own C signal handler writes a byte to the wakeup descriptor the moment a signal arrives, without the lock.
So an interval timer is the heart, and one thread takes its signals. Only a process that does not run at all
(stopped, or starved of the processor) falls silent.
"""

import os
import signal
import threading
import time

from moorage.workers.process import HEARTBEAT_S


def start_heartbeat(descriptor: int) -> None:
    """Send a byte to the socket every HEARTBEAT_S. Call from the main thread, before any other thread exists."""
    signal.signal(signal.SIGALRM, _ignore)
    os.set_blocking(descriptor, False)
    signal.set_wakeup_fd(descriptor, warn_on_full_buffer=False)
    signal.setitimer(signal.ITIMER_REAL, HEARTBEAT_S, HEARTBEAT_S)
    # Threads inherit this mask: models' system calls are never interrupted by the timer.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    threading.Thread(target=_take_signals, name="heartbeat", daemon=True).start()


def _ignore(_signal: int, _frame: object) -> None:
    """The byte was written before Python gets here."""


def _take_signals() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
    while True:
        time.sleep(3600.0)
