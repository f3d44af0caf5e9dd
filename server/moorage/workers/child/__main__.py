"""Entry of a worker process: DEVICE PARENT_PID CONTROL HANDLES HEARTBEAT, the last three inherited descriptors."""

import logging
import socket
import sys

from moorage.workers.child.control import ControlLoop
from moorage.workers.child.heartbeat import start_heartbeat
from moorage.workers.child.orphan import end_with_parent


def main() -> None:
    device, parent_pid, control, handles, heartbeat = sys.argv[1:]
    end_with_parent(int(parent_pid))
    start_heartbeat(int(heartbeat))
    # Switching threads every 5 ms, the default, is felt by a model that runs beside another's loading.
    sys.setswitchinterval(0.0005)
    logging.basicConfig(stream=sys.stderr, format="%(asctime)s worker %(process)d %(levelname)s %(message)s")
    ControlLoop(device, socket.socket(fileno=int(control)), socket.socket(fileno=int(handles))).run()


if __name__ == "__main__":
    main()
