"""A worker never outlives its server, however that ends."""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def end_with_parent(parent_pid: int) -> None:
    """Have the kernel kill this process when the server's main thread ends. Elsewhere than on Linux the control
    socket's end does it, as soon as the control loop reads."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # The parent may have died before the request took effect.
    if os.getppid() != parent_pid:
        os._exit(1)
