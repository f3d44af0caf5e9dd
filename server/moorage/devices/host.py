"""How much memory this process can use: the machine's, or less where a container (cgroup) sets a limit."""

from collections.abc import Iterator
from pathlib import Path

import psutil

_MEMBERSHIP = Path("/proc/self/cgroup")
_MOUNT = Path("/sys/fs/cgroup")


def total_memory_bytes() -> int:
    """The least of physical memory and every limit that a control group above this process sets."""
    physical_bytes = int(psutil.virtual_memory().total)
    return min([physical_bytes, *cgroup_limits_bytes(_MEMBERSHIP, _MOUNT)])


def cgroup_limits_bytes(membership: Path, mount: Path) -> Iterator[int]:
    """Every limit on the way from this process's control groups up to the root; none where there are no cgroups.

    membership: the file that names the groups (/proc/self/cgroup). mount: where their files are.
    """
    for line in _text(membership).splitlines():
        _, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if not controllers:
            yield from _limits_upwards(mount, group, "memory.max")
        elif "memory" in controllers.split(","):
            yield from _limits_upwards(mount / "memory", group, "memory.limit_in_bytes")


def _limits_upwards(top: Path, group: str, file_name: str) -> Iterator[int]:
    # Inside a container the group may be one that isn't visible here; its parents, up to the top, still count.
    parts = [part for part in group.split("/") if part not in ("", ".", "..")]
    for depth in range(len(parts), -1, -1):
        text = _text(top.joinpath(*parts[:depth], file_name)).strip()
        if text.isdecimal():  # "max" stands for no limit; so does a number beyond any memory
            yield int(text)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return ""
