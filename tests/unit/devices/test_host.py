from pathlib import Path

import psutil
import pytest

from moorage.devices.host import cgroup_limits_bytes, total_memory_bytes


def _tree(root: Path, membership: str, files: dict[str, str]) -> list[int]:
    (root / "cgroup").write_text(membership)
    for name, text in files.items():
        path = root / "fs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return list(cgroup_limits_bytes(root / "cgroup", root / "fs"))


def test_total_is_positive_and_at_most_what_the_machine_has() -> None:
    assert 0 < total_memory_bytes() <= psutil.virtual_memory().total


@pytest.mark.parametrize(
    ("membership", "files", "limits"),
    [
        ("0::/", {"memory.max": "1000\n"}, [1000]),
        ("0::/a/b\n", {"a/b/memory.max": "max\n", "a/memory.max": "500\n", "memory.max": "900"}, [500, 900]),
        ("0::/not/visible/here", {"memory.max": "700"}, [700]),
        ("0::/../sibling", {"memory.max": "700", "sibling/memory.max": "600"}, [600, 700]),
        ("5:cpu,cpuacct:/x\n4:memory:/x\n", {"memory/x/memory.limit_in_bytes": "300\n"}, [300]),
        ("3:cpu:/x\n", {"memory/x/memory.limit_in_bytes": "300\n"}, []),
        ("1:name=systemd:/\n2:memory:/\n0::/\n", {"memory/memory.limit_in_bytes": str(2**63 - 4096)}, [2**63 - 4096]),
        ("nonsense\n\n:", {}, []),
    ],
    ids=["container", "nested", "hidden", "outside the namespace", "v1", "v1 without memory", "hybrid", "nonsense"],
)  # fmt: skip
def test_limits_are_found_upwards(tmp_path: Path, membership: str, files: dict[str, str], limits: list[int]) -> None:
    assert _tree(tmp_path, membership, files) == limits


def test_without_cgroups_there_is_no_limit(tmp_path: Path) -> None:
    assert list(cgroup_limits_bytes(tmp_path / "absent", tmp_path)) == []
