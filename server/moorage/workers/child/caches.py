"""What this process may take, and may keep of what is free again: of a CUDA device, and of pinned host memory."""

import gc
import threading
from collections.abc import Callable

import msgspec

from moorage.workers.child.in_order import InOrder
from moorage.workers.child.memory import release_cached_blocks, release_freed_memory, release_what_failed
from moorage.workers.messages import GaveBack, SetCap
from moorage.workers.runtimes import cached_bytes, cap_device_memory, release_pinned_memory, reserved_bytes

# As much as a cap adds to what is leased, so that small runs beside others cost no cudaMalloc.
KEPT_BYTES = 64 * 1024 * 1024
# A cap is taken the moment it comes: this is for a main thread that does not get the interpreter.
_CAP_LIMIT_S = 10.0


class Caches:
    """Called from all threads. What takes long is done on a thread of its own: no run, move or message waits for it."""

    def __init__(self, device: str, send: Callable[[msgspec.Struct], None]) -> None:
        self._device = device
        self._send = send
        self._cap = SetCap(0)
        self._capped = threading.Condition()
        self._pinned_is_due = False
        self._returns = InOrder("caches")

    def set_cap(self, cap: SetCap) -> None:
        """From now on this holds, for whatever comes next on whichever thread."""
        with self._capped:
            cap_device_memory(self._device, cap.device_bytes)
            self._cap = cap
            self._capped.notify_all()

    def apply_cap(self) -> None:
        """Tell a framework that was not there when the cap came."""
        with self._capped:
            if self._cap.number:
                cap_device_memory(self._device, self._cap.device_bytes)

    def wait_for_cap(self, number: int) -> None:
        """Return when the cap with this number holds: a run comes on another socket, and may overtake it."""
        if self._cap.number < number:
            with self._capped:
                self._capped.wait_for(lambda: self._cap.number >= number, _CAP_LIMIT_S)

    def run_ended(self) -> None:
        """Call before the server hears of it: what the run took may be leased to another process at once."""
        if not self._cap.keeps_cached and cached_bytes(self._device) > KEPT_BYTES:
            release_cached_blocks(self._device)

    def ran_out(self) -> None:
        """Call instead where a run found no memory: it may be tried again at once, by this process or another."""
        release_what_failed(self._device)

    def copies_ended(self) -> None:
        """Host copies may have been given up: soon, give back what was pinned for them."""
        if self._cap.keeps_pinned or self._pinned_is_due:
            return
        self._pinned_is_due = True
        self._returns.put(self._release_pinned)

    def give_back(self) -> None:
        """Soon, give back what is cached, and answer."""
        self._returns.put(self._give_back)

    def _give_back(self) -> None:
        before_bytes = reserved_bytes(self._device)
        gc.collect()
        release_freed_memory(self._device)
        self._send(GaveBack(max(0, before_bytes - reserved_bytes(self._device))))
        if not self._cap.keeps_pinned:
            release_pinned_memory(self._device)

    def _release_pinned(self) -> None:
        self._pinned_is_due = False  # whatever ends from here on asks again
        release_pinned_memory(self._device)
