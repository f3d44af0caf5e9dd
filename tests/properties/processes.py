"""Worker processes as the world plays them: with the memory that they really hold."""

from dataclasses import dataclass, field

from moorage.domain.model import ModelKey
from moorage.scheduling.actions import Run


@dataclass
class Process:
    """A worker process.

    warming_bytes: what a run takes of the warm-up of what it builds.
    weights, host: bytes of each model on the device and beside it. states, parked: likewise of each stepped request.
    moving: what each model was told last and has not done yet ("unload", "offload", "restore").
    leaving: states that are to be suspended or dropped.
    """

    device: str
    context_bytes: int
    up: bool = False
    told_to_end: bool = False
    building: ModelKey | None = None
    warming_bytes: int = 0
    weights: dict[ModelKey, int] = field(default_factory=dict)
    host: dict[ModelKey, int] = field(default_factory=dict)
    moving: dict[ModelKey, str] = field(default_factory=dict)
    runs: dict[int, Run] = field(default_factory=dict)
    states: dict[tuple[ModelKey, int], int] = field(default_factory=dict)
    parked: dict[tuple[ModelKey, int], int] = field(default_factory=dict)
    leaving: dict[tuple[ModelKey, int], str] = field(default_factory=dict)

    @property
    def held_bytes(self) -> int:
        return (
            self.context_bytes
            + self.warming_bytes
            + sum(self.weights.values())
            + sum(self.states.values())
            + sum(run.workspace.size_bytes for run in self.runs.values())
        )

    @property
    def host_bytes(self) -> int:
        return sum(self.host.values()) + sum(self.parked.values())

    def runs_of(self, key: ModelKey) -> list[Run]:
        return [run for run in self.runs.values() if run.key == key]

    def forget_states(self, key: ModelKey) -> None:
        """A model is dropped: what was kept of its requests goes with it."""
        for table in (self.states, self.parked, self.leaving):
            for owner in [owner for owner in table if owner[0] == key]:
                del table[owner]
