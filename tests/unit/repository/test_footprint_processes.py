"""The file of footprints among processes: several that save, and one that dies of it."""

import shutil
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from moorage.domain.model import Footprint
from moorage.repository.footprints import CORRUPT_SUFFIX, FootprintKey, FootprintStore

PLACES = 400

# Saves many entries at a time, each time with the next number, and tells when they are down.
SAVER = f"""
import sys
from pathlib import Path
from moorage.domain.model import Footprint
from moorage.repository.footprints import FootprintKey, FootprintStore

path, name, rounds = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
print("ready", flush=True)
sys.stdin.readline()
for number in range(1, rounds + 1):
    keys = [FootprintKey(name + str(place), 1, "cpu", "f") for place in range({PLACES})]
    items = dict.fromkeys(keys, Footprint(weights_bytes=number))
    FootprintStore(path).save(items)
    print(number, flush=True)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "footprints.sqlite3"


def _saver(path: Path, name: str, rounds: int) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", SAVER, str(path), name, str(rounds)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def test_two_processes_save_into_one_file(path: Path) -> None:
    savers = [_saver(path, name, 40) for name in ("a", "b")]
    for saver in savers:
        assert saver.stdout is not None
        assert saver.stdout.readline() == "ready\n"
    for saver in savers:
        _begin(saver)
    for saver in savers:
        _, errors = saver.communicate(timeout=50)
        assert (saver.returncode, errors) == (0, "")
    loaded = FootprintStore(path).load_all()
    assert {key.model for key in loaded} == {f"{name}{place}" for name in "ab" for place in range(PLACES)}
    assert set(loaded.values()) == {Footprint(weights_bytes=40)}


def test_a_process_killed_while_it_saves_leaves_a_whole_save(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cut_off = 0
    for attempt in range(40):
        last = _killed_in_a_save(path, when=attempt % 8 / 8)
        cut_off += Path(f"{path}-journal").exists()
        loaded = FootprintStore(path).load_all()
        assert len(loaded) == PLACES
        (footprint,) = set(loaded.values())
        assert footprint.weights_bytes in (last, last + 1)
        if cut_off == 4:
            break
    assert cut_off == 4
    assert caplog.text == ""
    assert not Path(f"{path}{CORRUPT_SUFFIX}").exists()


def _killed_in_a_save(path: Path, when: float) -> int:
    """Kill a saver at that share of a millisecond after a save of it has begun. The last save that it told of."""
    journal = Path(f"{path}-journal")
    with _saver(path, "m", 100_000) as saver:
        _begin(saver)
        assert saver.stdout is not None
        told = [saver.stdout.readline(), saver.stdout.readline()]
        give_up_s = time.monotonic() + 10.0
        while not journal.exists() and time.monotonic() < give_up_s:
            pass
        kill_s = time.monotonic() + when * 1e-3
        while time.monotonic() < kill_s:
            pass
        saver.kill()
        told += saver.stdout.readlines()
    return int(told[-1])


def _begin(saver: "subprocess.Popen[str]") -> None:
    assert saver.stdin is not None
    saver.stdin.write("go\n")
    saver.stdin.flush()


def test_half_a_save_is_undone(path: Path, tmp_path: Path) -> None:
    items = {FootprintKey(f"m{number}", 1, "cpu", "f"): Footprint(weights_bytes=1) for number in range(2000)}
    FootprintStore(path).save(items)
    whole = path.read_bytes()
    cut_off = tmp_path / path.name
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA cache_size = 1")  # pages go to the file before the transaction ends
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("UPDATE footprints SET weights_bytes = 2")
        shutil.copy(path, cut_off)
        shutil.copy(f"{path}-journal", f"{cut_off}-journal")
    assert cut_off.read_bytes() != whole
    assert FootprintStore(cut_off).load_all() == items
