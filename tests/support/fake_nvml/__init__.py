"""A card that is not there: a small libnvidia-ml.so.1, compiled from C, that the real binding loads.

Each change is written to a file that the library reads at every call, so it steers processes that already run.
"""

import atexit
import ctypes
import functools
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

GIB = 1 << 30
NO_PERMISSION = 4
_SOURCE = Path(__file__).with_name("fake_nvml.c")
_NAME = "libnvidia-ml.so.1"
_NOT_TOLD = 2**64 - 1

needs_c_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler (cc) to build the fake NVML")

Processes = Mapping[int, int | None]


@dataclass
class Slice:
    """One MIG slice. processes: bytes by process id, None where the driver does not tell. overhead: of the driver.

    mps_clients: likewise, of those that compute through the Multi-Process Service.
    """

    uuid: str
    total_bytes: int
    processes: Processes = field(default_factory=dict)
    overhead_bytes: int = 0
    mps_clients: Processes = field(default_factory=dict)


@dataclass
class Card(Slice):
    """A whole card. bus: its place on the PCI bus. slices: MIG is on, with these; None: it is off."""

    name: str = "Fake H200"
    bus: int = 1
    utilization_percent: int = 0
    is_lost: bool = False
    slices: list[Slice] | None = None


class FakeCard:
    """One card, and others `beside` it. Changes are seen by the next call of whoever has loaded the library.

    library_folder: for LD_LIBRARY_PATH. environment: variables with which a new process finds the card.
    """

    def __init__(self, folder: Path, *beside: Card, total_bytes: int = 8 * GIB) -> None:
        self.card = Card("GPU-fa4e0000-0000-0000-0000-000000000000", total_bytes)
        self.cards = [self.card, *beside]
        self.library_folder = _built()
        self._control = folder / "fake_nvml"
        self._refusals: dict[str, int] = {}
        self._hangs: dict[str, float] = {}
        self._drift = (0, 0)
        self.write()

    @property
    def environment(self) -> dict[str, str]:
        folders = [str(self.library_folder), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
        return {
            "LD_LIBRARY_PATH": os.pathsep.join(folders),
            "FAKE_NVML_CONTROL": str(self._control),
            "CUDA_VISIBLE_DEVICES": self.card.uuid,
        }

    def load(self, patch: pytest.MonkeyPatch) -> None:
        """Have this very process use the card. The loader looks a library up by name once, so it must come first."""
        patch.setenv("FAKE_NVML_CONTROL", str(self._control))
        ctypes.CDLL(str(self.library_folder / _NAME))
        if not hasattr(ctypes.CDLL(_NAME), "fake_nvml_opened"):
            pytest.skip(f"another {_NAME} was loaded into this process before")

    @property
    def times_opened(self) -> int:
        """How often this process has opened NVML and not closed it since."""
        return ctypes.c_int.in_dll(ctypes.CDLL(_NAME), "fake_nvml_opened").value

    def use(
        self, *, total_bytes: int | None = None, processes: Processes | None = None, overhead_bytes: int | None = None
    ) -> None:
        """What the card has, what processes hold, and what is used beside that; what is not named stays."""
        self.card.total_bytes = self.card.total_bytes if total_bytes is None else total_bytes
        self.card.processes = self.card.processes if processes is None else processes
        self.card.overhead_bytes = self.card.overhead_bytes if overhead_bytes is None else overhead_bytes
        self.write()

    def lose(self) -> None:
        """The card falls off the bus: every call about it says so."""
        self.card.is_lost = True
        self.write()

    def refuse(self, call: str, code: int = NO_PERMISSION) -> None:
        """Have the NVML function of this name fail."""
        self._refusals[call] = code
        self.write()

    def hang(self, seconds: float, call: str = "*") -> None:
        """Have calls under way and new ones, or one function, not return for so long, or until come_back."""
        self._hangs[call] = time.clock_gettime(time.CLOCK_BOOTTIME) + seconds
        self.write()

    def drift(self, step_bytes: int, times: int) -> None:
        """The first process allocates (or frees) so much right after somebody lists the processes, so many times."""
        self._drift = (step_bytes, times)
        self.write()

    def come_back(self) -> None:
        """Everything works again: no loss, no refusal, no hang."""
        self.card.is_lost = False
        self._refusals.clear()
        self._hangs.clear()
        self.write()

    def write(self) -> None:
        """Let the library see what was changed in `cards`. At once and as a whole."""
        lines = ["driver 999.1", "drift {} {}".format(*self._drift)]
        lines += [f"refuse {call} {code}" for call, code in self._refusals.items()]
        lines += [f"hang {call} {until_s:.6f}" for call, until_s in self._hangs.items()]
        for number, card in enumerate(self.cards):
            lines += _lines(number, card)
        draft = self._control.with_suffix(".new")
        draft.write_text("\n".join(lines) + "\n", errors="surrogateescape")
        draft.replace(self._control)


def _lines(number: int, card: Card) -> list[str]:
    state = f"{card.utilization_percent} {int(card.is_lost)} {int(card.slices is not None)}"
    lines = [f"card {card.bus} {card.total_bytes} {_used_bytes(card)} {state} {card.uuid} {card.name}"]
    lines += _process_lines(number, -1, card)
    for index, part in enumerate(card.slices or []):
        lines.append(f"slice {number} {part.total_bytes} {_used_bytes(part)} {part.uuid}")
        lines += _process_lines(number, index, part)
    return lines


def _process_lines(number: int, index: int, part: Slice) -> list[str]:
    return [
        f"process {number} {index} {mps} {pid} {_NOT_TOLD if size_bytes is None else size_bytes}"
        for mps, processes in enumerate([part.processes, part.mps_clients])
        for pid, size_bytes in processes.items()
    ]


def _used_bytes(part: Slice) -> int:
    held = [*part.processes.values(), *part.mps_clients.values()]
    return part.overhead_bytes + sum(size_bytes or 0 for size_bytes in held)


@functools.cache
def _built() -> Path:
    """The folder with the library: compiled once, gone with the process."""
    folder = Path(tempfile.mkdtemp(prefix="fake-nvml-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    shared = ["-shared", "-fPIC", f"-Wl,-soname,{_NAME}"]
    warnings = ["-std=gnu11", "-Wall", "-Wextra", "-Werror"]
    subprocess.run(["cc", *warnings, *shared, "-o", str(folder / _NAME), str(_SOURCE)], check=True)
    return folder
