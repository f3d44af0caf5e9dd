"""Whose shared memory there is on the machine."""

import os
import re
from pathlib import Path

_LANE = re.compile(r"^\S+ \S+ \S+ \S+ (\d+) +/memfd:moorage-lane", re.MULTILINE)


def shared_memory() -> set[str]:
    """Every lane that some process has mapped (they have no name, so by inode), and every name in /dev/shm."""
    found = set(os.listdir("/dev/shm"))
    for maps in Path("/proc").glob("[0-9]*/maps"):
        try:
            found |= set(_LANE.findall(maps.read_text()))
        except (OSError, UnicodeDecodeError):  # it has just ended
            continue
    return found
