"""Where the checks run: the device, how much memory they play with, and where their files go."""

import random
from dataclasses import dataclass
from pathlib import Path

MIB = 1024**2
GIB = 1024**3


@dataclass(frozen=True, slots=True)
class Machine:
    """device: "cuda:0" or "cpu". scale: 1.0 for models of 8 GiB. folder: for repositories, settings and logs."""

    device: str
    scale: float
    folder: Path

    @property
    def is_card(self) -> bool:
        return self.device.startswith("cuda:")

    def size_bytes(self, gib: float) -> int:
        """So many GiB, scaled down to whole MiB; at least one."""
        return max(1, round(gib * 1024 * self.scale)) * MIB

    @property
    def budget_bytes(self) -> int:
        return self.size_bytes(24)

    @property
    def context_bytes(self) -> int:
        """What a worker is charged for itself: a card's own default, and as much, scaled, where there is none."""
        return GIB // 2 if self.is_card else self.size_bytes(0.5)

    @property
    def host_budget_bytes(self) -> int:
        """Room for five offloaded models of 8 GiB, whatever the host says that it has: some grow as they are used."""
        return self.size_bytes(40)

    def folder_for(self, name: str) -> Path:
        """A new folder."""
        folder = self.folder / f"{name}-{random.randrange(16**6):06x}"
        folder.mkdir(parents=True)
        return folder
