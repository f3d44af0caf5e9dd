"""Threads that a worker can't do without."""

import contextlib
import os
import queue
import sys
import threading
import traceback
from collections.abc import Callable, Iterator


class InOrder:
    """A thread that does what it is given, one after the other. Where something fails, the process ends."""

    def __init__(self, name: str) -> None:
        self._waiting: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        threading.Thread(target=self._work, name=name, daemon=True).start()

    def put(self, action: Callable[[], None]) -> None:
        """Have something done, and return at once. The server asks for little at a time: this is its bound."""
        self._waiting.put(action)

    def _work(self) -> None:
        with ending_the_process():
            while True:
                self._waiting.get()()


@contextlib.contextmanager
def ending_the_process() -> Iterator[None]:
    """Where the body fails the process ends, and the server sees that at once.

    Quietly where the server has gone, or has closed its side.
    """
    try:
        yield
    except ConnectionError:
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
